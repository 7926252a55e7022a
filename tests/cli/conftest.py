"""A folder with a task in it, and the command line called there as people call it: in a process of its own."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

PROGRAM = [sys.executable, "-c", "from actors.cli.main import main; main()"]


@attrs.frozen
class Place:
    """A folder to call the command line in. Nobody can be asked: standard input is empty."""

    folder: Path

    def holding(self, text: str, script: Any) -> "Place":
        """Write a task and the script of its model."""
        (self.folder / "task.toml").write_text(text)
        (self.folder / "script.json").write_text(json.dumps(script))
        return self

    def begun(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )

    def actors(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        running = self.begun(*arguments)
        try:
            out, err = running.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            raise
        return subprocess.CompletedProcess(arguments, running.returncode, out, err)

    def rows(self, sql: str) -> list[Any]:
        """Look into the store beside whoever writes it."""
        connection = sqlite3.connect(f"file:{self.folder / '.actors' / 'runs.db'}?mode=ro", uri=True)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def wait_until(self, sql: str) -> str:
        """Wait until a query has a row, and give its first column."""
        for _ in range(400):
            time.sleep(0.025)
            try:
                found = self.rows(sql)
            except sqlite3.Error:
                continue
            if found:
                return str(found[0][0])
        raise AssertionError(sql)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
