"""The one place that knows all parts, and introduces them to each other.

Read `running.py` (a contract becomes a tree that runs), `task_document.py` and
`task_file.py` (a file becomes plain data, and that a task), `run_settings.py`,
`task_schema.py` (its JSON Schema), `task_keys.py` (where a key stands that was
written elsewhere), `trees.py` (plain functions), `building.py` (a task's words
become objects), `reporting.py` (what is said of a run, from its store alone).
"""
