"""Programs that want more of log records, handlers, warnings, streams and clocks than what they say of the program.

Frames and files behind a record; formats that look into objects; hooks that a library calls with what is its own.
Where an attack may come to its end, its hands must be empty.
"""

from __future__ import annotations

from sandbox.conformance.attacks.attack import programs

HANDLER = "import logging\nclass H(logging.Handler):\n    def emit(self, record): {}\n"
HANDLER += "log = logging.getLogger(str(id(H)))\nlog.addHandler(H())\n"
FRAMES = {
    "a frame by exc_info": """
    import sys
    try: 1 / 0
    except ZeroDivisionError: keep(sys.exc_info()[2].tb_frame)
    """,
    "the end of a generator by exc_info": """
    import sys
    def g():
        try: yield
        finally:
            if sys.exc_info()[1] is not None: keep(sys.exc_info()[1])
    i = g()
    next(i)
    i.close()
    """,
    "a frame by a record": HANDLER.format("keep(record.exc_info[2].tb_frame)")
    + "try: 1 / 0\nexcept ZeroDivisionError: log.exception('x')\n",
    "the stack of a record": HANDLER.format("keep(record.stack_info[0:1])") + "log.error('x', stack_info=True)\n",
    "the factory of records": "import logging; keep(logging.getLogRecordFactory())",
}
BEHIND = {
    "the manager of loggers": "import logging; keep(logging.getLogger('x').manager.loggerDict)",
    "insides of a logger by vars": "import logging; keep(vars(logging.getLogger('x'))['manager'])",
    "insides of a record by vars": HANDLER.format("keep(vars(record)['msg'])") + "log.error('x')\n",
    "handlers of the module": "import logging; keep(logging._handlers, logging.lastResort)",
    "globals by a method of a handler": "import logging; keep(logging.Handler.handle.__globals__)",
    "globals by a warning": "import warnings; keep(warnings.WarningMessage.__init__.__globals__)",
    "globals by timeit": "import timeit; keep(timeit.timeit.__globals__)",
    "modules behind timeit": "import timeit; keep(timeit.itertools, timeit.sys)",
    "warnings in a registry": """
    import warnings
    found = {}
    warnings.warn_explicit('x', UserWarning, 'f', 1, registry=found)
    keep(found)
    """,
    "a file by a handler": "import logging; keep(logging.FileHandler('@CANARY@', 'r').stream.read(1))",
    "sockets by handlers": "import logging.handlers; keep(logging.handlers.SocketHandler)",
    "code as text for timeit": "import timeit; timeit.timeit('keep(1)', globals={'keep': keep}, number=1)",
    "code as text for a timer": "import timeit; timeit.Timer('keep(1)', globals={'keep': keep}).timeit(1)",
    "the loader of errno": "import errno; keep(errno.__loader__)",
    "the metaclass by members": "from enum import Enum\nclass C(Enum): A = 1\nkeep(type(C).__members__)",
    "members that change the class": """
    from enum import Enum
    class C(Enum): A = 1
    class Liar:
        def __eq__(self, other):
            other['X'] = 1
            return True
    C.__members__ == Liar()
    if 'X' in C.__members__: keep('changed')
    """,
}
FORMATS = {
    "attributes in braces": """
    import logging
    class H(logging.Handler):
        def emit(self, record): keep(self.format(record))
    log, h = logging.getLogger(str(id(H))), H()
    h.setFormatter(logging.Formatter('{levelno.__class__.__mro__}', style='{'))
    log.addHandler(h)
    log.error('x')
    """,
    "attributes of a message in braces": """
    import logging
    h = logging.Handler()
    h.setFormatter(logging.Formatter('{msg.__globals__}', style='{'))
    keep(h.format(logging.makeLogRecord({'msg': keep, 'args': ()})))
    """,
}
FORMATS_HERE = {
    "a formatter over a function": """
    import logging
    f = lambda: 1
    f.getMessage = lambda: ''
    keep(logging.Formatter('%(__globals__)s').format(f))
    """,
    "a formatter over a class": """
    import logging
    class C:
        getMessage = staticmethod(lambda: '')
    keep(logging.Formatter('%(__dict__)s').format(C))
    """,
    "a logger with logs of the program's": "import logging; keep(logging.Logger('x', print))",
    "a record of the program's": "import logging; keep(logging.LogRecord('x', {'__class__': print}))",
    "a hook in extra": HANDLER.format("keep(record)") + "log.error('x', extra={'__deepcopy__': print})\n",
    "a hook in a record that is made": "import logging; keep(logging.makeLogRecord({'__copy__': print}))",
    "a formatter over a module": "import json, logging; keep(logging.Formatter('%(dumps)s').format(json))",
    "special names of a record": HANDLER.format("keep(logging.Formatter('%(__class__)s').format(record))")
    + "log.error('x')\n",
    "insides of a logger": "import logging; keep(logging.getLogger('x')._logs)",
    "insides of a logger by getattr": "import logging; keep(getattr(logging.root, '_lo' + 'gs').write)",
    "insides of a logger by a pattern": """
    import logging
    match logging.root:
        case object(_logs=x): keep(x)
    """,
    "insides of a logger that is derived": """
    import logging
    class L(logging.Logger):
        def __init__(self): self.name = 'x'
    L().error('x')
    keep(L()._logs)
    """,
    "a record with another class": HANDLER.format("record.__class__ = H; keep(1)") + "log.error('x')\n",
    "special names in extra": HANDLER.format("keep(record)") + "log.error('x', extra={'__class__': H})\n",
    "a method in extra": HANDLER.format("keep(record)") + "log.error('x', extra={'getMessage': print})\n",
    "what a record says in extra": HANDLER.format("keep(record)") + "log.error('x', extra={'exc_text': 'x'})\n",
    "a logger with another class": """
    import logging
    class L: pass
    logging.root.__class__ = L
    keep(1)
    """,
    "a category that is no class": "import warnings; warnings.warn('x', keep)",
    "a category that is no warning": "import warnings; warnings.warn('x', type(keep)); keep(1)",
    "a module as a stream for json": "import json, logging; json.dump(1, logging.root); keep(1)",
    "a function as a stream for json": "import json; keep(json.load(keep))",
    "a handler that is a class of the library": """
    import json, logging
    logging.root.addHandler(json.JSONEncoder)
    logging.error('x')
    keep(1)
    """,
}

ATTACKS = [
    *programs("traceback", FRAMES, may_end=["the end of a generator by exc_info"]),
    *programs("submodule walk", BEHIND, may_end=["members that change the class"]),
    *programs("format walk", FORMATS),
    *programs("library tells", FORMATS_HERE, may_end=["insides of a logger by a pattern"], control=False),
]
