"""The command line: what people see.

Read `main.py` (the commands and how they end), `running.py` (a run with signals
and a live view), `live.py`, `pictures.py` (trees and tables), `demo.py`.
"""
