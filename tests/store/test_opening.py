import os
import shutil
import sqlite3
import stat
import tempfile
from pathlib import Path

import pytest
import trio

from actors.agents.rows import EventSeen
from actors.errors import ConfigError, StoreError, StoreErrorKind
from actors.store import connections
from actors.store.connections import DEFAULT_PATH, _patiently, connect_memory, connect_reader, connect_writer
from actors.store.schema import FORMAT, TABLES
from actors.store.storage_errors import fault_of
from actors.store.store import Store, open_reader

EVENT = EventSeen("t", "t", "{}")


async def opened(path: Path, synchronous: str = "NORMAL") -> None:
    async with Store.open(path, synchronous=synchronous) as store:
        await store.commit(EVENT)


def pragmas(connection: sqlite3.Connection) -> dict[str, object]:
    names = ("journal_mode", "busy_timeout", "synchronous", "query_only")
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.mark.parametrize(("word", "number"), [("NORMAL", 1), ("FULL", 2)])
def test_every_connection_has_the_pragmas(path: Path, word: str, number: int):
    writer = connect_writer(path, word)
    reader = connect_reader(path)
    memory = connect_memory()
    try:
        assert pragmas(writer) == {"journal_mode": "wal", "busy_timeout": 5000, "synchronous": number, "query_only": 0}
        assert pragmas(reader) == {"journal_mode": "wal", "busy_timeout": 5000, "synchronous": 1, "query_only": 1}
        assert pragmas(memory) == {"journal_mode": "memory", "busy_timeout": 5000, "synchronous": 1, "query_only": 0}
    finally:
        for connection in (writer, reader, memory):
            connection.close()


async def test_the_connections_of_an_open_store_are_these(path: Path):
    async with Store.open(path, synchronous="FULL") as store:
        found = {name: store.select(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "busy_timeout", "query_only")}
        assert found == {"journal_mode": "wal", "busy_timeout": 5000, "query_only": 1}
        assert pragmas(store._connection)["synchronous"] == 2
    with open_reader(path) as reader:
        assert reader.select("PRAGMA busy_timeout") == [(5000,)]


def test_an_unknown_durability_is_refused_and_makes_no_file(path: Path):
    with pytest.raises(ConfigError, match="must be NORMAL or FULL"):
        trio.run(opened, path, "OFF")
    assert not path.exists()


async def test_the_directory_of_the_default_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    async with Store.open() as store:
        await store.commit(EVENT)
    assert (tmp_path / DEFAULT_PATH).is_file()


async def test_any_other_directory_must_be_there(tmp_path: Path):
    missing = tmp_path / "typo" / "runs.db"
    with pytest.raises(StoreError, match=r"directory .*typo does not exist") as raised:
        async with Store.open(missing):
            pass
    assert str(missing) in str(raised.value)
    assert not missing.parent.exists()


async def test_a_directory_is_no_store(tmp_path: Path):
    with pytest.raises(StoreError, match="is a directory") as raised:
        async with Store.open(tmp_path):
            pass
    assert raised.value.file == str(tmp_path)


@pytest.mark.parametrize("content", [b"this is no database at all" * 100, b"x", b"SQLite format 3\0" + b"junk" * 500])
def test_garbage_is_called_corrupt_and_left_as_it_is(path: Path, content: bytes):
    path.write_bytes(content)
    with pytest.raises(StoreError) as raised:
        trio.run(opened, path)
    assert raised.value.kind is StoreErrorKind.corrupt
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreError) as read:
        with open_reader(path):
            pass
    assert read.value.kind is StoreErrorKind.corrupt
    assert path.read_bytes() == content


def test_what_is_no_file_names_itself(tmp_path: Path):
    under_a_file = tmp_path / "file" / "runs.db"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as raised:
        connect_writer(under_a_file)
    assert str(under_a_file) in str(raised.value)


def test_an_unreadable_file_names_itself(path: Path):
    path.write_bytes(b"")
    path.chmod(0)
    try:
        path.read_bytes()
    except PermissionError:
        with pytest.raises(StoreError, match="Permission denied"):
            connect_writer(path)
    else:
        # Whoever may read everything is refused nothing: then it is a new store.
        connect_writer(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0


def test_a_newer_format_is_refused_and_left_as_it_is(path: Path):
    connection = connect_writer(path)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = path.read_bytes()
    for opening in (connect_writer, connect_reader):
        with pytest.raises(StoreError, match=f"has format {FORMAT + 1}") as raised:
            opening(path)
        assert raised.value.kind is StoreErrorKind.format
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_refused_and_left_as_it_is(path: Path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (a)")
    other.close()
    before = path.read_bytes()
    for opening in (connect_writer, connect_reader):
        with pytest.raises(StoreError, match="another program") as raised:
            opening(path)
        assert raised.value.kind is StoreErrorKind.format
    assert path.read_bytes() == before


def test_a_file_of_an_older_version_gets_what_is_missing(path: Path):
    connection = connect_writer(path)
    connection.execute("ALTER TABLE steps DROP COLUMN remaining_tokens")
    connection.execute("DROP TABLE gate_attempts")
    connection.execute("INSERT INTO steps (run_id, step, decision, result) VALUES ('r', 1, 'kept', '')")
    connection.close()
    again = connect_writer(path)
    assert again.execute("SELECT decision, remaining_tokens FROM steps").fetchall() == [("kept", None)]
    names = {row[0] for row in again.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    again.close()
    assert {table.name for table in TABLES} <= names


def test_a_missing_file_is_not_made_by_reading(path: Path):
    with pytest.raises(ConfigError, match="does not exist") as raised:
        with open_reader(path):
            pass
    assert str(path) in str(raised.value)
    assert list(path.parent.iterdir()) == []


def test_an_empty_file_is_no_store_to_read(path: Path):
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="is no store"):
        with open_reader(path):
            pass
    assert path.read_bytes() == b""


async def test_a_reader_can_write_nothing(path: Path):
    async with Store.open(path) as store:
        await store.commit(EVENT)
    with open_reader(path) as reader:
        with pytest.raises(StoreError):
            reader.select("DELETE FROM run_events")
        assert len(reader.trace("t")) == 1


async def test_a_store_is_used_within_its_block(path: Path):
    store = Store.open(path)
    with pytest.raises(StoreError, match="async with"):
        await store.commit(EVENT)
    with pytest.raises(StoreError, match="async with"):
        store.runs()
    async with store:
        await store.commit(EVENT)
    with pytest.raises(StoreError, match="closed"):
        await store.commit(EVENT)
    with pytest.raises(StoreError, match="async with"):
        store.runs()
    with pytest.raises(StoreError, match="opened before"):
        async with store:
            pass


def test_names_that_mean_something_in_an_address_are_only_names(tmp_path: Path):
    for name in ("a?mode=memory.db", "a#b.db", "a%41.db", ":memory:"):
        trio.run(opened, tmp_path / name)
        with open_reader(tmp_path / name) as reader:
            assert len(reader.trace("t")) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == [":memory:", "a#b.db", "a%41.db", "a?mode=memory.db"]


def test_opening_tries_again_while_it_is_busy_and_at_once_gives_up_on_all_else():
    def failing(code: int) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = code
        return error

    errors = [failing(sqlite3.SQLITE_BUSY), failing(sqlite3.SQLITE_BUSY), failing(sqlite3.SQLITE_CANTOPEN)]

    def action() -> None:
        raise errors.pop(0)

    with pytest.raises(sqlite3.OperationalError) as raised:
        _patiently(action)
    assert raised.value.sqlite_errorcode == sqlite3.SQLITE_CANTOPEN
    assert errors == []


def test_a_file_that_may_not_be_written_in_a_folder_that_may_not_either_is_read_as_it_stands(path: Path):
    """As another user, because nothing is forbidden to the superuser."""
    if os.getuid() != 0:
        pytest.skip("only the superuser may become somebody else")
    trio.run(opened, path)
    folder = Path(tempfile.mkdtemp())
    try:
        shutil.copy(path, folder / "runs.db")
        (folder / "runs.db").chmod(0o444)
        folder.chmod(0o555)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                with open_reader(folder / "runs.db") as reader:
                    code = 0 if reader.select("SELECT count(*) FROM run_events") == [(1,)] else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_file_with_a_log_beside_it_is_never_read_without_it(path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def refused(file: Path, mode: str, synchronous: str, prepare: object) -> sqlite3.Connection:
        asked.append(mode)
        error = sqlite3.OperationalError("attempt to write a readonly database")
        error.sqlite_errorcode = sqlite3.SQLITE_READONLY
        raise fault_of(error, str(file)).error() from error

    monkeypatch.setattr(connections, "_opened", refused)
    Path(f"{path}-wal").touch()
    with pytest.raises(StoreError):
        connect_reader(path)
    Path(f"{path}-wal").unlink()
    with pytest.raises(StoreError):
        connect_reader(path)
    assert asked == ["rw", "rw", "ro&immutable=1"]
