"""Where every run is written down: one SQLite file, one writer, readers beside it.

Read `schema.py` (the tables), `row_codec.py` (which row becomes which
statements), `batch.py` and `writer.py` (group commit), `readers.py` and `records.py`
(what can be read), `store.py` (the two stores), `connections.py` and `storage_errors.py` (SQLite itself).
"""
