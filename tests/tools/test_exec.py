"""The tool `exec` asks about the program and the line, and tells apart each way to end."""

import pytest
import trio

from actors.agents.call_journal import is_replayable
from actors.agents.policy import Policy
from actors.agents.ports import Act, ActRefused, ObservationKind, Tool
from actors.errors import ToolFailed
from actors.tools.arguments import spec_for
from actors.tools.exec import Exec, ExecArguments
from actors.tools.toolbox import builtin_tools, tool_names


async def test_a_command_runs_in_the_workspace_and_tells_its_exit_code_and_output(root, context):
    seen = await Exec().run({"argv": ["sh", "-c", "pwd; exit 3"]}, context)
    assert (seen.kind, seen.target) == (ObservationKind.tool, "sh -c 'pwd; exit 3'")
    assert seen.text == f"[exit code 3]\n{root}\n"
    assert (await Exec().run({"argv": ["true"]}, context)).text == "[exit code 0]\n(it printed nothing)"


async def test_there_is_no_shell(root, context):
    seen = await Exec().run({"argv": ["echo", "$HOME; id", "`id`", "*", "> out"]}, context)
    assert seen.text == "[exit code 0]\n$HOME; id `id` * > out\n"
    assert list(root.iterdir()) == []


async def test_the_policy_is_asked_about_the_program_and_about_the_line(context):
    await Exec().run({"argv": ["echo", "a b"]}, context)
    assert context.asked == [(Act.exec, "echo"), (Act.exec, "echo 'a b'")]
    context.asked.clear()
    await Exec().run({"argv": ["true"]}, context)
    assert context.asked == [(Act.exec, "true")]


@pytest.mark.parametrize("glob", ["touch", "touch *", "*made*"])
async def test_a_deny_of_either_is_a_deny_and_nothing_runs(root, context, glob):
    context.policy = Policy.permissive().layer("op").deny_exec(glob)
    with pytest.raises(ActRefused):
        await Exec().run({"argv": ["touch", "made.txt"]}, context)
    assert list(root.iterdir()) == []
    context.policy = Policy.permissive().layer("op").deny_exec("rm")
    await Exec().run({"argv": ["touch", "made.txt"]}, context)
    assert [path.name for path in root.iterdir()] == ["made.txt"]


async def test_each_way_to_end_reads_differently(context):
    async def text(*argv: str) -> str:
        return (await Exec().run({"argv": list(argv)}, context)).text

    context.exec_timeout = 0.15
    assert await text("sh", "-c", "exit 127") == "[exit code 127]\n(it printed nothing)"
    assert (await text("no-such-program")).startswith('"no-such-program" is unavailable')
    assert await text("sh", "-c", "kill -KILL $$") == "[ended by signal 9]\n(it printed nothing)"
    said = await text("sh", "-c", "echo half; sleep 9; echo whole")
    assert said == "[timed out after 0.15 s and was killed; what it had printed follows]\nhalf\n"


async def test_a_cancelled_command_leaves_nothing(context, marker):
    with trio.move_on_after(0.15) as scope:
        await Exec().run({"argv": ["sh", "-c", f"sleep {marker.text} & wait"]}, context)
    assert scope.cancelled_caught
    assert marker.living() == []


async def test_only_changed_files_count_as_a_change(root, context):
    (root / "a.txt").write_text("x")
    for argv, changed in [
        (["cat", "a.txt"], False),
        (["no-such-program"], False),
        (["sh", "-c", "echo y >> a.txt"], True),
        (["mkdir", "empty"], False),
        (["touch", "empty/new"], True),
        (["rm", "a.txt"], True),
    ]:
        assert (await Exec().run({"argv": argv}, context)).changed is changed, argv


async def test_in_a_workspace_too_large_to_look_at_a_command_is_taken_to_be_work(root, context):
    for place in range(4):
        (root / str(place)).touch()
    assert (await Exec(most_looked_at=3).run({"argv": ["true"]}, context)).changed
    assert not (await Exec(most_looked_at=4).run({"argv": ["true"]}, context)).changed


@pytest.mark.parametrize("argv", [[], [""], [" "], ["echo", "a\0b"], "echo a", ["echo", 1], None])
async def test_an_argv_that_is_none_is_refused_before_anybody_is_asked(context, argv):
    with pytest.raises(ToolFailed, match="exec: "):
        await Exec().run({"argv": argv}, context)
    assert context.asked == []


async def test_a_program_with_a_name_that_is_no_text_is_unavailable(context):
    seen = await Exec().run({"argv": ["\ud800"]}, context)
    assert seen.text.startswith('"\ufffd" cannot be started')


# ── the box ─────────────────────────────────────────────────────────────────


def test_the_names_of_the_built_in_tools_come_from_the_tools_themselves():
    tools: tuple[Tool, ...] = builtin_tools()
    names = [tool.spec.name for tool in tools]
    assert len(set(names)) == len(names)
    assert tool_names() == set(names)
    read_only = {"read_file", "list_dir", "find", "grep", "shell_poll", "todo_write"}
    read_only |= {"git_status", "git_diff", "git_log"}
    assert {tool.spec.name for tool in tools if tool.read_only} == read_only
    # What may be run again when its process ended in the middle; all else is put to the operator.
    assert [tool.spec.name for tool in tools if not is_replayable(tool)] == ["shell_start"]


def test_a_schema_is_closed_and_names_what_must_be_given():
    for tool in builtin_tools():
        schema = tool.spec.parameters
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        assert all("description" in each and "type" in each for each in schema["properties"].values()), tool.spec.name
    schemas = {tool.spec.name: tool.spec.parameters for tool in builtin_tools()}
    assert schemas["read_file"]["required"] == ["path"]
    assert schemas["grep"]["properties"]["path_glob"]["type"] == "string"


def test_a_schema_of_lists_is_the_one_the_check_uses():
    assert spec_for("x", "y", ExecArguments).parameters["properties"]["argv"] == {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "the program and its arguments, one text each",
    }
