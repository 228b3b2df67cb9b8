"""The findings about a table: what should or could be done, with figures, a threshold, and the command that does it.

All commands that say something about the state of a table show findings of this room: `health`, `doctor`, `describe`, `advise`,
`buckets ls`, `report`. A rule is one function with the decorator `rule`, in the module of its subject; the runner finds it there,
and it takes the next free code (`tests/inspect/findings/test_runner.py` names it).
"""
