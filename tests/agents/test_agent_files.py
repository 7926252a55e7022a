"""Files of named agents only narrow, and say where they are wrong."""

import pytest

from actors.agents.agent_files import FOREIGN_TOOLS, KEYS, read_agent_file, read_foreign_agent
from actors.agents.roster import MOST_ROLE, AgentDef
from actors.errors import ConfigError
from actors.tools.toolbox import tool_names


def file(*lines, body="You read.\n"):
    return "\n".join(("---", *lines, "---", body))


def problems(text, stem="a"):
    with pytest.raises(ConfigError) as refused:
        read_agent_file(text, "x.md", stem)
    return refused.value.problems


def foreign(*lines, body="You read.\n"):
    return read_foreign_agent(file(*lines, body=body), "x.md")


def test_a_file_of_ours_is_a_definition_and_its_text_the_role():
    text = file(
        "name: searcher", "description: Finds things.", "model: cheap", "max_steps: 4", "effort: low",
        "deny_write: true", "deny_net: true", "worktree: true", "tools:", "  - grep", "  - read_file",
    )  # fmt: skip
    read = read_agent_file(text, "x.md", "other").definition
    assert read == AgentDef(
        "searcher", "You read.", "cheap", 4, "low", True, True, True, ("grep", "read_file"), "Finds things."
    )
    assert AgentDef.from_dict("searcher", read.to_dict(), "x") == read


def test_a_file_without_a_name_is_called_as_it_is():
    assert read_agent_file("Only a role.", "x.md", "author").definition == AgentDef("author", "Only a role.")
    assert read_agent_file(file("tools: grep, find"), "x.md", "a").definition.tools == ("grep", "find")


@pytest.mark.parametrize(
    "key", ["allow_write", "allow", "allowed_tools", "Allow_exec", "policy", "permissions", "exec_sandbox", "role", "hooks", "sandbox"]
)
def test_no_key_of_a_file_gives_anything(key):
    [(place, text)] = problems(file("name: a", f"{key}: true"))
    assert place == "x.md:3" and key in text and "unknown key" in text
    assert not [known for known in KEYS if "allow" in known or known == "policy"]


@pytest.mark.parametrize("name", ["../x", "a/b", "a b", "/etc", "..", "'a\\0'", "''", "ä", "x" * 65, "3", "null", "[a]", "true"])
def test_a_name_that_is_none_is_refused_with_its_line(name):
    [(place, text)] = problems(file("max_steps: 2", f"name: {name}"))
    assert place == "x.md:3" and "1 to 64 letters" in text


def test_the_name_of_a_file_must_be_one_too():
    [(place, text)] = problems("role", stem="a b")
    assert place == "x.md:1" and "the name of the file" in text


def test_every_problem_is_told_with_its_line():
    text = file("name: a", "max_steps: yes", "deny_write: 1", "naem: b", "tools: 3", body="x" * (MOST_ROLE + 1))
    assert sorted(place for place, _ in problems(text)) == [f"x.md:{line}" for line in (3, 4, 5, 6, 7)]


# ── files of the other tool ─────────────────────────────────────────────────


def test_of_the_other_tools_files_five_keys_are_read_and_the_rest_is_told():
    read, notes = foreign(
        "name: code-reviewer", "description: Use it when: always", "model: some-model", "maxTurns: 7",
        "tools: Read, Grep, Bash", "color: red", "permissionMode: bypassPermissions",
    )  # fmt: skip
    assert read is not None
    assert read.definition == AgentDef(
        "code-reviewer", "You read.", "some-model", 7,
        tools=("read_file", "grep", "exec", "shell", "shell_start", "shell_poll", "shell_kill"),
        description="Use it when: always",
    )  # fmt: skip
    assert [place for place, _ in notes] == ["x.md:7", "x.md:8"]


def test_every_tool_that_a_name_of_the_other_tool_means_is_there():
    assert {each for names in FOREIGN_TOOLS.values() for each in names} <= tool_names() | {"spawn_agent"}


@pytest.mark.parametrize(
    ("tools", "kept"),
    [
        ("tools: Read, WebFetch", ("read_file",)), ("tools: Bash(git log:*, x), Read", ("read_file",)), ("tools:", ()),
        ("tools: WebFetch", ()), ("tools: '*'", None), ("color: x", None), ("tools: [Read, Read]", ("read_file",)),
        ("tools: mcp__a__b", ()), ("tools: read", ()),
    ],
)  # fmt: skip
def test_tools_of_the_other_tool_never_give_more_than_they_say(tools, kept):
    read, _ = foreign("name: a", tools)
    assert read is not None and read.definition.tools == kept


@pytest.mark.parametrize("model", ["inherit", "sonnet", "Opus"])
def test_a_models_pet_name_asks_for_the_runs_own(model):
    read, notes = foreign("name: a", f"model: {model}")
    assert read is not None and read.definition.model is None and len(notes) == (model != "inherit")


@pytest.mark.parametrize(
    "lines",
    [("name: ../x",), ("description: x",), ("name: a", "name: b"), ("name: a", "maxTurns: -1"), ("name: &a b",), ("name: a", "model: 3")],
)
def test_one_that_cannot_be_read_is_left_out_and_told(lines):
    read, notes = foreign(*lines)
    assert read is None and "left out" in notes[-1][1]
    read, notes = foreign("name: a", body="x" * (MOST_ROLE + 1))
    assert read is None and "left out" in notes[-1][1]
