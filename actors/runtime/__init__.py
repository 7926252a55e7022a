"""Actors and supervision on trio. Knows nothing of models, money or SQL.

Read `exits.py` (how a thing ends), `child.py` (the wrapper every task runs in,
and the tree of them), `host.py` (the shielded scope a tree lives under),
`mailbox.py` and `actor.py` (messages), `deadlines.py` (one heap for all
timeouts), `stops.py` (receipts), `restart.py` (what an end asks for, pure).
"""
