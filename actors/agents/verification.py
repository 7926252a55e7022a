"""When work counts as done: criteria as records. Pure; they are evaluated elsewhere.

The operator or the parent's model writes a criterion, and the worker cannot
change it. A criterion that anything would pass (an empty needle, no command)
cannot be made. Kinds that nothing evaluates yet can be written down and read;
the runner refuses them before a run starts.

A check that runs a program can be defeated through the files that it reads: its
tests, its configuration. Those that ``protect`` names are noted when the run
starts, and a check whose files are others by then gives no verdict.
"""

import json
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

import attrs

from actors.agents.globs import glob_problem, path_glob_problem
from actors.agents.judged_fields import (
    as_table,
    as_tuple,
    each,
    filled_problem,
    flag_problem,
    judged,
    plain_record,
    read_record,
    said_problem,
    text_problem,
    whole_number,
)
from actors.errors import ConfigError

# Windows has exit codes of 32 bits.
LARGEST_EXIT: Final = 2**32 - 1
# Each file of a workspace is held against all globs before and after each look, and each compiled one is a process;
# a model may write both for its children.
MOST_PROTECT: Final = 100
MOST_PROTECT_CHARACTERS: Final = 8_192
MOST_COMPILED: Final = 1_000


class CriterionKind(StrEnum):
    """The kinds of criteria; stored values."""

    command = "command"
    file_contains = "file_contains"
    file_equals = "file_equals"
    workspace_file_contains = "workspace_file_contains"
    document_contains = "document_contains"
    each_compiles = "each_compiles"
    review = "review"
    none = "none"


SUPPORTED: Final = frozenset(
    {
        CriterionKind.command,
        CriterionKind.file_contains,
        CriterionKind.file_equals,
        CriterionKind.workspace_file_contains,
        CriterionKind.each_compiles,
        CriterionKind.review,
        CriterionKind.none,
    }
)


def _protect_problem(value: object) -> str | None:
    """Judge a glob of files that must not change; one that could match no path protects nothing."""
    problem = glob_problem(value)
    return problem or path_glob_problem(str(value))


def _globs_problem(value: object) -> str | None:
    problem = _GLOBS(value)
    if problem is None and isinstance(value, tuple) and (size := sum(map(len, value))) > MOST_PROTECT_CHARACTERS:
        return f"has {size} characters; keep at most {MOST_PROTECT_CHARACTERS}"
    return problem


_GLOBS: Final = each(_protect_problem, most=MOST_PROTECT)


class Verification:
    """A criterion. Made by one of the class methods; its class tells its fields.

    Example::

        Verification.command(argv=["pytest", "-q"], expect_exit=0)

    Raises:
        ValueError: a field cannot be used, or would pass anything; the text names it.
    """

    __slots__ = ()

    kind: ClassVar[CriterionKind]

    @staticmethod
    def command(argv: Sequence[str], expect_exit: int = 0, protect: Sequence[str] = ()) -> "CommandPasses":
        """Demand that a command, run without a shell, exits so. A killed one never passes.

        ``protect`` are globs of files that must be the ones that stood there at the start.
        """
        return CommandPasses(argv, expect_exit, protect)  # type: ignore[arg-type]  # the fields make them tuples

    @staticmethod
    def file_contains(text: str) -> "FileContains":
        """Demand that the file of a single-file contract contains ``text``."""
        return FileContains(text)

    @staticmethod
    def file_equals(text: str) -> "FileEquals":
        """Demand that the file of a single-file contract is ``text``, to the last character."""
        return FileEquals(text)

    @staticmethod
    def workspace_file_contains(file: str, needle: str) -> "WorkspaceFileContains":
        """Demand that a file of the workspace contains ``needle``."""
        return WorkspaceFileContains(file, needle)

    @staticmethod
    def document_contains(file: str, needle: str) -> "DocumentContains":
        """Demand that the text taken out of a document contains ``needle``. Nothing evaluates it yet."""
        return DocumentContains(file, needle)

    @staticmethod
    def each_compiles(files: Sequence[str]) -> "EachCompiles":
        """Demand that each file compiles, in the language that its name tells. Nothing of it is run."""
        return EachCompiles(files)  # type: ignore[arg-type]  # the field makes it a tuple

    @staticmethod
    def review(rubric: str, allow_self_review: bool = False) -> "Review":
        """Demand that a reviewing model is content, which is not the one that did the work unless that is allowed."""
        return Review(rubric, allow_self_review)

    @staticmethod
    def none() -> "NoCriterion":
        """Demand nothing: the run ends when the model stops calling tools."""
        return NoCriterion()

    @property
    def is_supported(self) -> bool:
        """Whether something evaluates this kind."""
        return self.kind in SUPPORTED

    def describe(self) -> str:
        """Tell the worker in one sentence what is demanded; empty when nothing is."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form of files and JSON. Globs that protect nothing are left out."""
        plain = {"kind": self.kind.value, **plain_record(self, "verify")}
        if plain.get("protect") == []:
            del plain["protect"]
        return plain

    @classmethod
    def from_dict(cls, plain: object, at: str = "verify") -> "Verification":
        """Read the plain form strictly.

        Raises:
            ConfigError: every problem with the path of its key below ``at``.
        """
        table = as_table(plain, at)
        kind = table.get("kind")
        found = _KINDS.get(kind) if isinstance(kind, str) else None
        if found is None:
            said = "is required:" if kind is None else f"{kind!r} is none;"
            words = ", ".join(each for each in CriterionKind if each in SUPPORTED)
            raise ConfigError((f"{at}.kind", f"{said} write one of {words}"))
        return read_record(found, {key: value for key, value in table.items() if key != "kind"}, at)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@attrs.frozen
class CommandPasses(Verification):
    """A command exits as expected."""

    kind: ClassVar[CriterionKind] = CriterionKind.command
    argv: tuple[str, ...] = judged(each(text_problem, least=1), converter=as_tuple)
    expect_exit: int = judged(whole_number(most=LARGEST_EXIT), 0)
    protect: tuple[str, ...] = judged(_globs_problem, (), converter=as_tuple)

    def __attrs_post_init__(self) -> None:
        if not self.argv[0].strip():
            raise ValueError("argv item 0 must name a program")

    def describe(self) -> str:
        kept = f", and no file changed that matches {', '.join(map(_quoted, self.protect))}" if self.protect else ""
        return f"the command `{shlex.join(self.argv)}` exits with {self.expect_exit}{kept}"


@attrs.frozen
class FileContains(Verification):
    """The one file contains a text."""

    kind: ClassVar[CriterionKind] = CriterionKind.file_contains
    text: str = judged(filled_problem)

    def describe(self) -> str:
        return f"the file contains {_quoted(self.text)}"


@attrs.frozen
class FileEquals(Verification):
    """The one file is a text; an empty one is a file without a character."""

    kind: ClassVar[CriterionKind] = CriterionKind.file_equals
    text: str = judged(text_problem)

    def describe(self) -> str:
        return f"the file is exactly {_quoted(self.text)}"


@attrs.frozen
class WorkspaceFileContains(Verification):
    """A file of the workspace contains a text. Whether the path stays in the workspace is judged when it is opened."""

    kind: ClassVar[CriterionKind] = CriterionKind.workspace_file_contains
    file: str = judged(filled_problem)
    needle: str = judged(filled_problem)

    def describe(self) -> str:
        return f"the file {_quoted(self.file)} contains {_quoted(self.needle)}"


@attrs.frozen
class DocumentContains(Verification):
    """The text of a document contains a text."""

    kind: ClassVar[CriterionKind] = CriterionKind.document_contains
    file: str = judged(filled_problem)
    needle: str = judged(filled_problem)

    def describe(self) -> str:
        return f"the document {_quoted(self.file)} contains {_quoted(self.needle)}"


@attrs.frozen
class EachCompiles(Verification):
    """Each of some files compiles."""

    kind: ClassVar[CriterionKind] = CriterionKind.each_compiles
    files: tuple[str, ...] = judged(each(filled_problem, least=1, most=MOST_COMPILED), converter=as_tuple)

    def describe(self) -> str:
        return f"each of these files compiles: {', '.join(map(_quoted, self.files))}"


@attrs.frozen
class Review(Verification):
    """A reviewing model is content, judging by a rubric."""

    kind: ClassVar[CriterionKind] = CriterionKind.review
    rubric: str = judged(said_problem)
    allow_self_review: bool = judged(flag_problem, False)

    def describe(self) -> str:
        return f"a reviewer is content, who judges by this: {self.rubric}"


@attrs.frozen
class NoCriterion(Verification):
    """Nothing is demanded."""

    kind: ClassVar[CriterionKind] = CriterionKind.none

    def describe(self) -> str:
        return ""


_KINDS: Final[dict[str, type[Verification]]] = {
    found.kind.value: found
    for found in (
        CommandPasses,
        FileContains,
        FileEquals,
        WorkspaceFileContains,
        DocumentContains,
        EachCompiles,
        Review,
        NoCriterion,
    )
}
