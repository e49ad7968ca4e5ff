"""The command line: `cli` says which commands there are, `commands` has one file for each, `terminal` shows things.

Beside them the policies that come along (`embedded`, `policy/`) and the demo's data. Thin. Not here: the work itself,
which is the other rooms'.
"""
