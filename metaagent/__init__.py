"""The command line: `metaagent design`, `run`, `check`, `show`, `templates`, `trace`, `doctor`, `demo`.

Thin: it reads arguments, calls the other rooms, and writes what they return, for people or as JSON. Commands import
the rooms they need when they run, so that `metaagent --help` stays light.
"""
