"""What an agent can do to the world, one file each, behind one path guard and one place that starts processes.

Read `paths.py` (the guard), `whole_files.py` and `walking.py` (on it), `process.py`
(the one place that starts processes) with `leftovers.py` (it ends them), then any
tool; `toolbox.py` lists them, `verifying.py` judges work. `arguments.py` and `output.py` are pure.
"""
