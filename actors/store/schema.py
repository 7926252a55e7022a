"""Tables, indexes and pragmas. Additive: a new column has a default or is null, and the format number stays.

All time stamps come from the database's clock, in UTC with milliseconds; one
clock for start, end and elapsed time.
"""

import sqlite3
from pathlib import Path
from typing import Any, Final

import sqlite_utils

from actors.errors import StoreError, StoreErrorKind
from actors.store.storage_errors import told

FORMAT: Final = 1
NOW: Final = "strftime('%Y-%m-%dT%H:%M:%fZ','now')"
MEMORY: Final = ":memory:"
BUSY_SECONDS: Final = 5.0

# table: (columns in order with their types, primary key, not null columns)
Columns = dict[str, type]
TABLES: Final[dict[str, tuple[Columns, Any]]] = {
    "runs": (
        {
            "run_id": str,
            "tree_id": str,
            "path": str,
            "depth": int,
            "parent_run_id": str,
            "goal": str,
            "file": str,
            "provider": str,
            "model": str,
            "contract": str,
            "containment": str,
            "root": str,
            "status": str,
            "outcome": str,
            "started_at": str,
            "finished_at": str,
        },
        "run_id",
    ),
    "run_policies": ({"run_id": str, "policy": str, "at": str}, "run_id"),
    "run_outcomes": (
        {
            "run_id": str,
            "outcome": str,
            "detail": str,
            "success": int,
            "steps": int,
            "input_tokens": int,
            "output_tokens": int,
            "cached_input_tokens": int,
            "spent_tokens": int,
            "spent_microdollars": int,
            "overrun_tokens": int,
            "estimated": int,
            "duration_ms": int,
            "said": str,
            "error": str,
            "finished_at": str,
        },
        "run_id",
    ),
    # One terminal for a run, by the primary key; nothing replaces a row in here.
    "terminals": ({"run_id": str, "terminal": str, "at": str}, "run_id"),
    "provider_calls": (
        {
            "id": int,
            "run_id": str,
            "step": int,
            "attempt": int,
            "provider": str,
            "asked": str,
            "served": str,
            "prompt": int,
            "completion": int,
            "total": int,
            "cache_read": int,
            "cache_write": int,
            "reasoning": int,
            "server_tool_requests": int,
            "latency_ms": int,
            "ttft_ms": int,
            "finish_reason": str,
            "failure": str,
            "detail": str,
            "at": str,
        },
        "id",
    ),
    "reservations": (
        {
            "run_id": str,
            "reservation": int,
            "step": int,
            "attempt": int,
            "tokens": int,
            "microdollars": int,
            "state": str,
            "used_tokens": int,
            "used_microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "at": str,
        },
        ("run_id", "reservation"),
    ),
    "step_turns": (
        {"run_id": str, "step": int, "text": str, "calls": str, "finish_reason": str, "prompt_digest": str, "at": str},
        ("run_id", "step"),
    ),
    "steps": (
        {
            "run_id": str,
            "step": int,
            "decision": str,
            "result": str,
            "tool_call": str,
            "tokens": int,
            "remaining_tokens": int,
            "at": str,
        },
        ("run_id", "step"),
    ),
    "checkpoint_events": ({"id": int, "run_id": str, "step": int, "kind": str, "detail": str, "at": str}, "id"),
    "ledger_observations": (
        {"run_id": str, "step": int, "ordinal": int, "kind": str, "target": str, "text": str},
        ("run_id", "step", "ordinal"),
    ),
    "policy_events": (
        {
            "id": int,
            "run_id": str,
            "step": int,
            "kind": str,
            "act": str,
            "target": str,
            "rule": str,
            "layer": str,
            "decision": str,
            "source": str,
            "at": str,
        },
        "id",
    ),
    "agent_events": (
        {
            "id": int,
            "run_id": str,
            "step": int,
            "kind": str,
            "detail": str,
            "child_run_id": str,
            "tokens": int,
            "remaining": int,
            "at": str,
        },
        "id",
    ),
    "spawns": (
        {
            "parent_run_id": str,
            "step": int,
            "ordinal": int,
            "child_run_id": str,
            "goal": str,
            "definition": str,
            "arguments": str,
            "at": str,
        },
        ("parent_run_id", "step", "ordinal"),
    ),
    "agent_queue": (
        {"parent_run_id": str, "step": int, "ordinal": int, "goal": str, "depth": int, "queued_at": str},
        ("parent_run_id", "step", "ordinal"),
    ),
    "gate_attempts": (
        {"id": int, "run_id": str, "step": int, "phase": str, "verdict": str, "detail": str, "at": str},
        "id",
    ),
    "halts": (
        {
            "tree_id": str,
            "kind": str,
            "by": str,
            "path": str,
            "reason": str,
            "limit_": float,
            "used": float,
            "requested": float,
            "at": str,
        },
        "tree_id",
    ),
    "ledger": (
        {
            "tree_id": str,
            "spent_tokens": int,
            "spent_microdollars": int,
            "overrun_tokens": int,
            "overrun_microdollars": int,
            "reserved_tokens": int,
            "reserved_microdollars": int,
            "agents": int,
            "calls": int,
            "tool_calls": int,
            "unpriced_calls": int,
            "peak_working": int,
            "refusals": str,
            "at": str,
        },
        "tree_id",
    ),
    "run_events": ({"sequence": int, "tree_id": str, "run_id": str, "event": str, "at": str}, "sequence"),
}

INDEXES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("runs", ("tree_id", "path")),
    ("runs", ("parent_run_id",)),
    ("provider_calls", ("run_id", "step")),
    ("checkpoint_events", ("run_id", "step")),
    ("policy_events", ("run_id",)),
    ("agent_events", ("run_id", "kind")),
    ("gate_attempts", ("run_id",)),
    ("run_events", ("tree_id", "sequence")),
)


def connect(file: str, *, synchronous: str = "NORMAL", create: bool = True) -> sqlite_utils.Database:
    """Open a database with every pragma set, and make or check its tables.

    Raises:
        StoreError: it cannot be opened, is no database, or was written by a newer version; names the file.
    """
    if file != MEMORY and Path(file).is_dir():
        raise StoreError(StoreErrorKind.other, file, "is a directory; name a file")
    try:
        if create and file != MEMORY:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            file, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None, cached_statements=256
        )
    except OSError as error:
        raise StoreError(StoreErrorKind.other, file, f"cannot be opened: {error.strerror}") from error
    except sqlite3.Error as error:
        raise told(error, file) from error
    try:
        return _prepare(connection, file, synchronous)
    except sqlite3.Error as error:
        connection.close()
        raise told(error, file) from error
    except BaseException:
        connection.close()
        raise


def _prepare(connection: sqlite3.Connection, file: str, synchronous: str) -> sqlite_utils.Database:
    if synchronous not in ("NORMAL", "FULL"):
        raise ValueError(f"synchronous must be NORMAL or FULL, not {synchronous!r}")
    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    database = sqlite_utils.Database(connection)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise StoreError(
            StoreErrorKind.format, file, f"was written in format {version}; this version knows up to {FORMAT}"
        )
    if version < FORMAT:
        _create(database)
    return database


def _create(database: sqlite_utils.Database) -> None:
    # Two processes may open a new file at once: whoever comes second finds the tables there.
    database.conn.execute("BEGIN IMMEDIATE")
    try:
        if database.conn.execute("PRAGMA user_version").fetchone()[0] < FORMAT:
            for name, (columns, key) in TABLES.items():
                database.conn.execute(database.create_table_sql(name, columns, pk=key, if_not_exists=True))
            for table, names in INDEXES:
                index = f"idx_{table}_{'_'.join(names)}"
                database.conn.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {table} ({', '.join(names)})")
            database.conn.execute(f"PRAGMA user_version = {FORMAT}")
        database.conn.execute("COMMIT")
    except BaseException:
        if database.conn.in_transaction:
            database.conn.execute("ROLLBACK")
        raise


def connect_reader(file: str) -> sqlite3.Connection:
    """Open a read-only connection to an existing file.

    Raises:
        StoreError: it is missing, no database of ours, or newer than known; names the file.
    """
    if not Path(file).is_file():
        raise StoreError(StoreErrorKind.other, file, "there is no such file")
    try:
        connection = sqlite3.connect(
            f"{Path(file).resolve().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS, check_same_thread=False
        )
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise told(error, file) from error
    if version > FORMAT or version == 0:
        connection.close()
        text = "holds no runs" if version == 0 else f"was written in format {version}; this version knows up to {FORMAT}"
        raise StoreError(StoreErrorKind.format, file, text)
    return connection
