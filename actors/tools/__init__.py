"""What an agent can do to the world, one file each, behind one path guard and one place that starts processes.

Read `paths.py` (the guard), `whole_files.py` and `walking.py` (on it), `process.py`
(the one place that starts processes) with `process_end.py` and `leftovers.py` (they end
them), `sandbox_grants.py`, `sandbox_plan.py`, `sandbox_places.py` and `sandbox.py` (what
stands around them; `sandbox_start.py` is a program of its own), then any tool;
`toolbox.py` lists them, `verifying.py` judges work.
`arguments.py`, `output.py`, `sandbox_grants.py` and `sandbox_plan.py` are pure.
"""
