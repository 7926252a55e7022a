"""Criteria that anything would pass cannot be made, and what is read is what was written."""

import pytest

from actors.agents.verification import SUPPORTED, CommandPasses, CriterionKind, Verification
from actors.errors import ConfigError

ALL = [
    Verification.command(argv=["cargo", "test"], expect_exit=3, protect=["tests/*", "conftest.py"]),
    Verification.file_contains("x"),
    Verification.file_equals(""),
    Verification.workspace_file_contains("a/b.txt", "needle"),
    Verification.document_contains("a.pdf", "needle"),
    Verification.each_compiles(["a.py", "b.py"]),
    Verification.review("is it kind?", allow_self_review=True),
    Verification.none(),
]


def problems_of(plain):
    with pytest.raises(ConfigError) as refused:
        Verification.from_dict(plain, "contract.verify")
    return refused.value.problems


def test_there_is_one_criterion_here_for_each_kind():
    assert [criterion.kind for criterion in ALL] == list(CriterionKind)


@pytest.mark.parametrize("criterion", ALL, ids=lambda criterion: criterion.kind)
def test_the_plain_form_gives_back_an_equal_criterion(criterion):
    plain = criterion.to_dict()
    assert plain["kind"] == criterion.kind.value
    assert Verification.from_dict(plain) == criterion
    assert Verification.from_dict(plain).to_dict() == plain


def test_the_plain_form_of_a_command_is_that_of_a_task_file():
    assert Verification.command(["pytest", "-q"]).to_dict() == {
        "kind": "command",
        "argv": ["pytest", "-q"],
        "expect_exit": 0,
    }


def test_what_has_a_default_may_be_left_out():
    read = Verification.from_dict({"kind": "command", "argv": ["make"]})
    assert read == CommandPasses(("make",), 0)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Verification.command([]), "argv"),
        (lambda: Verification.command("make test"), "argv"),
        (lambda: Verification.command(["", "x"]), "argv"),
        (lambda: Verification.command(["  "]), "argv"),
        (lambda: Verification.command(["a\0b"]), "argv"),
        (lambda: Verification.command(["a", 1]), "argv"),
        (lambda: Verification.command(["a"], expect_exit=True), "expect_exit"),
        (lambda: Verification.command(["a"], expect_exit=-1), "expect_exit"),
        (lambda: Verification.command(["a"], expect_exit="0"), "expect_exit"),
        (lambda: Verification.command(["a"], protect="*.py"), "protect"),
        (lambda: Verification.command(["a"], protect=[""]), "protect"),
        (lambda: Verification.command(["a"], protect=["tests/../x"]), "protect"),
        (lambda: Verification.command(["a"], protect=["tests/"]), "protect"),
        (lambda: Verification.command(["a"], protect=["a\nb"]), "protect"),
        # They are held against each file of the workspace, before and after each look; and a model may write them.
        (lambda: Verification.command(["a"], protect=[f"a{n}" for n in range(101)]), "protect has 101"),
        (lambda: Verification.command(["a"], protect=["*" + "a" * 4_000] * 3), "protect has 12003"),
        (lambda: Verification.each_compiles([f"{n}.py" for n in range(1_001)]), "files has 1001"),
        (lambda: Verification.file_contains(""), "text"),
        (lambda: Verification.file_contains(None), "text"),
        (lambda: Verification.file_equals("\ud800"), "text"),
        (lambda: Verification.workspace_file_contains("a", ""), "needle"),
        (lambda: Verification.workspace_file_contains("", "a"), "file"),
        (lambda: Verification.workspace_file_contains("a\0", "a"), "file"),
        (lambda: Verification.document_contains("a", ""), "needle"),
        (lambda: Verification.each_compiles([]), "files"),
        (lambda: Verification.each_compiles("ab"), "files"),
        (lambda: Verification.review(" "), "rubric"),
        (lambda: Verification.review("r", allow_self_review=1), "allow_self_review"),
    ],
)
def test_a_criterion_that_cannot_be_meant_is_refused_by_the_name_of_its_field(make, field):
    with pytest.raises(ValueError, match=rf"^{field} "):
        make()


def test_an_argument_may_be_empty_when_the_program_is_not():
    assert Verification.command(["grep", ""]).argv == ("grep", "")


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ("none", "contract.verify"),
        (None, "contract.verify"),
        ({}, "contract.verify.kind"),
        ({"kind": "nothing"}, "contract.verify.kind"),
        ({"kind": ["none"]}, "contract.verify.kind"),
        ({"kind": "none", "argv": []}, "contract.verify.argv"),
        ({"kind": "command"}, "contract.verify.argv"),
        ({"kind": "command", "argv": "make"}, "contract.verify.argv"),
        ({"kind": "command", "argv": ["make"], "expect_exit": True}, "contract.verify.expect_exit"),
        ({"kind": "workspace_file_contains", "file": "a", "needle": ""}, "contract.verify.needle"),
        ({"kind": "file_contains", "text": 3}, "contract.verify.text"),
    ],
)
def test_a_wrong_plain_form_is_refused_with_the_path_of_the_key(plain, path):
    assert [problem[0] for problem in problems_of(plain)] == [path]


def test_all_problems_are_told_and_not_only_the_first():
    found = problems_of({"kind": "workspace_file_contains", "file": 3, "nedle": "x"})
    assert dict(found) == {
        "contract.verify.nedle": "unknown key; did you mean needle?",
        "contract.verify.file": "must be a text, not a number",
        "contract.verify.needle": "is required",
    }


def test_kinds_that_nothing_evaluates_yet_say_so():
    assert {criterion.kind for criterion in ALL if not criterion.is_supported} == {CriterionKind.document_contains}
    assert len(SUPPORTED) == 7


def test_the_worker_is_told_what_is_demanded():
    assert Verification.none().describe() == ""
    assert Verification.command(["sh", "-c", "a b"]).describe() == "the command `sh -c 'a b'` exits with 0"
    protected = Verification.command(["make"], protect=["tests/*"])
    assert protected.describe() == 'the command `make` exits with 0, and no file changed that matches "tests/*"'
    assert Verification.file_equals("a\nü").describe() == 'the file is exactly "a\\nü"'
    assert Verification.workspace_file_contains("d.txt", "done").describe() == 'the file "d.txt" contains "done"'
    assert all(criterion.describe() for criterion in ALL if criterion.kind is not CriterionKind.none)


def test_a_criterion_cannot_be_changed():
    with pytest.raises(AttributeError):
        Verification.file_contains("x").text = ""
