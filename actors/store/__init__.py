"""Where every run is written down: one SQLite file, one writer, readers beside it.

Read `schema.py` (the tables), `row_codec.py` (which row becomes which
statements), `writer.py` (group commit), `store.py` (the two stores), `readers.py`
and `records.py` (what can be read), `connections.py` and `storage_errors.py` (SQLite itself).
"""
