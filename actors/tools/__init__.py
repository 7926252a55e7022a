"""What an agent can do to the world, one file each, behind one path guard and one place that starts processes.

Read `paths.py` (the guard), `process.py` (the one place that starts
processes), then any tool; `toolbox.py` lists them, `verifying.py` judges work.
"""
