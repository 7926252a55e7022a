"""Actors and supervision on trio. Knows nothing of models, money or SQL.

Read `exits.py` (how a thing ends), `child.py` (the wrapper every task runs in,
and the tree of them), `host.py` (the shielded scope a tree lives under) and
`stops.py` (receipts). Then messages: `mailbox.py`, `actor.py`, `behaviour.py`
(actors of one's own) with `behaviour_ref.py` (a look inside), `links.py`,
`timers.py`, `named.py`, `registry.py` and `dead_letters.py`. Then supervision:
`specs.py`, `restart.py` and `plan.py` (pure), `supervisor.py` that carries the
plan out, `supervisor_ref.py` (its handle), `open_supervisor.py` (a tree as a
block), `tasks.py` and `partitions.py`. Beside them stand `deadlines.py` (one
heap for all timeouts), `wait_graph.py` (waits that could never end) and
`watchdog.py` (who holds the loop).
"""
