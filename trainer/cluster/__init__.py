"""A run on several processes and machines: what sits where, what a step is predicted to take.

Not here: the loop (`trainer.run`), what memory a run needs (`trainer.run.needs`), and what a terminal shows.
"""

from trainer.cluster.layout import Bundle, Layout, Node, Process, Unplaceable, layout, shown

__all__ = ["Bundle", "Layout", "Node", "Process", "Unplaceable", "layout", "shown"]
