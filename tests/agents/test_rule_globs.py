"""A rule in the spelling of another language is refused with what to write, and what a command may be called is not."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.policy import Policy, operator_policy
from actors.agents.ports import Act
from actors.agents.rule_globs import rule_glob_problem
from actors.errors import ConfigError


@pytest.mark.parametrize(
    ("glob", "remedy"),
    [
        ("rm  -rf *", "one blank"),
        ("rm ", "remove it"),
        (" rm", "remove it"),
        ("rm/", "write rm"),
        ("/", "write *"),
        ("~/bin/x *", "the whole path"),
        ("$HOME/x", "the whole path"),
        ("{rm,mv} *", "a rule for each"),
        ("[rm] *", "a rule for each"),
        ("!rm", "the other effect"),
        ("curl * | sh", "each is judged alone"),
        ("make && rm *", "each is judged alone"),
        ("ls > *", "each is judged alone"),
        ('grep "a b" *', "single quotes"),
        ("find * -exec rm {} *", "single quotes"),
        ("git diff HEAD^", "single quotes"),
        ("ls ~/x", "single quotes"),
        ("rm ä", "single quotes"),
    ],
)
def test_a_rule_for_commands_that_matches_no_line_is_refused_with_its_remedy(glob, remedy):
    assert remedy in (rule_glob_problem(Act.exec, glob) or "")


@pytest.mark.parametrize(
    "glob",
    [
        "*", "rm", "rm *", "rm*", "[", "'[' -f *", "ls src/", "grep 'a  b' *", "git commit -m '*'", "pip install 'x[y]'",
        "*;*", "*$HOME*", "sh -c *curl*|*sh*", "/opt/grün/x", "python3.?? -m pytest*", "a=b", "find * -exec rm '{}' *",
        "echo 'it'\"'\"'s'", "git commit -m 'fix *", "git diff 'HEAD^'",
    ],
)  # fmt: skip
def test_a_rule_for_commands_that_some_line_matches_is_taken(glob):
    assert rule_glob_problem(Act.exec, glob) is None


@given(st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="*?"), max_size=6), min_size=1))
def test_a_line_is_a_sound_rule_for_itself_unless_its_program_has_an_odd_name(rest):
    line = shlex.join(["rm", *rest])
    assert rule_glob_problem(Act.exec, line) is None
    assert Policy.permissive().layer("mine").deny_exec(line).explain(Act.exec, line).rule == line


@pytest.mark.parametrize("name", ["builtin", "remembered", "provider", "child"])
def test_a_layer_of_a_file_cannot_go_by_the_name_of_one_of_ours(name):
    with pytest.raises(ConfigError, match=r"policy\.layers\[0\]\.name.*layer of ours; write another"):
        operator_policy({"layers": [{"name": name, "rules": []}]})


def test_two_layers_of_a_file_cannot_have_one_name():
    layers = [{"name": "a", "rules": []}, {"name": "b", "rules": []}, {"name": "a", "rules": []}]
    with pytest.raises(ConfigError, match=r"policy\.layers\[2\]\.name.*layers\[0\] too"):
        operator_policy({"layers": layers})
    # What is stored, or merged, may have them.
    assert len(Policy.from_dict({"layers": layers}).layers) == 3


def test_a_stored_policy_keeps_the_layer_that_is_ours():
    assert Policy.from_dict(Policy.default().to_dict()) == Policy.default()
