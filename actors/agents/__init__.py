"""Agents: what one is bound by, how it works, and how it ends.

Read `contract.py` (what is asked), `outcomes.py` and `terminals.py` (how it may
end), `policy.py` (what it may touch), `turns.py` (the loop as a table), `loop.py`
(the loop at work), `tree.py` (the tree it hangs in), `ports.py` and `rows.py`
(what other parts must offer).
"""
