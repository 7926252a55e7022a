"""What a tree may use, who has used what, and how it stops.

Read `limits.py` (the boundary, set once), `usage.py` and `prices.py` (what a
call costs), `ledger_state.py` (the arithmetic, pure), `ledger.py` (the actor
around it), `slots.py` (how many work at once), `rows.py` (the port to a store).
"""
