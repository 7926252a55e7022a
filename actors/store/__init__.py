"""The store: one SQLite file that is the truth about every run in it.

Read `schema.py` (tables and pragmas), `row_codec.py` (records to SQL, pure),
`writer.py` (one writer, group commit), `readers.py` (what people and programs
ask), `store.py` (both together), `storage_errors.py`.
"""
