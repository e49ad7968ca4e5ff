"""The commands, one file each: options, work and report. `main` of a module is the command; its docstring is the help.

Beside them what several share: `options` (what options are called and mean) and `inputs` (reading what they name). Not
here: which commands there are (`metaagent.cli`) and how things look (`metaagent.terminal`).
"""
