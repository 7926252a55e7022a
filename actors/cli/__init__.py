"""The command line: what people see.

Read `main.py` (the commands), `ending.py` (how they fail), `interrupts.py` and
`streams.py` (what surrounds every one of them), `running.py` (a run with signals
and a live view), `notices.py` (what the parts log meanwhile), `approving.py` and
`quoting.py` (a model's text before a person), `live.py`, `pictures.py` (trees and
tables), `viewing.py`, `following.py`, `auditing.py`, `phrases.py`, `again.py`, `demo.py`.
"""
