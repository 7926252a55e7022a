"""What a yes makes a tree remember: it answers asks and nothing else, and it is read back as it was written."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.agents.exec_judging import Judged, effect_of, judge_command
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.agents.remembered import (
    LAYER,
    MOST_CHARACTERS,
    MOST_REMEMBERED,
    Memory,
    Remembered,
    after,
    from_text,
    restored,
    to_text,
    uncovered,
)


def memory(*rules: tuple[str, str]) -> Memory:
    return Memory(tuple(Remembered(Act(act), glob) for act, glob in rules))


def command(known: Memory, policy: Policy, *argv: str) -> str | None:
    found = known.covers_command(policy, argv, judge_command(policy, argv))
    return None if found is None else found.rule


# ── rules ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("act", "glob", "says"),
    [
        ("write", "", "must not be empty"),
        ("write", "src/../x", "can match nothing"),
        ("write", "src/", "can match nothing"),
        ("net", "http://host", "can match nothing"),
        ("exec", "a\x00b", "control character"),
        ("exec", "a\ud800", "half a character"),
        ("exec", "a" * 5_000, "shorten it"),
        ("exec", 7, "must be a text"),
        ("fly", "x", "fly"),
    ],
)
def test_a_malformed_rule_is_refused_when_it_is_made(act: Any, glob: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Remembered(act, glob)


def test_rules_match_as_those_of_a_policy_do_by_path_by_last_part_and_by_host() -> None:
    known = memory(("write", "notes/*"), ("read", "a.txt"), ("net", "Example.com"))
    found = known.match(Act.write, "notes/x/y")
    assert found is not None and (found.effect, found.rule, found.layer) == (Effect.allow, "notes/*", LAYER)
    assert known.match(Act.read, "deep/a.txt") is not None and known.match(Act.net, "example.com:443") is not None
    assert known.match(Act.read, "notes/x") is None and known.match(Act.write, "a.txt") is None
    assert known.match(Act.write, "notes/" + "x" * 5_000) is None
    assert Memory().match(Act.write, "x") is None


def test_an_act_that_is_seen_in_several_ways_needs_a_rule_for_each_that_asks() -> None:
    policy = Policy.permissive().layer("run").ask_write("*.txt").deny_write("no.txt")
    known = memory(("write", "a.txt"), ("write", "no.txt"))

    def covers(*targets: str) -> bool:
        seen = [Judged(each, policy.explain(Act.write, each)) for each in targets]
        return known.covers(Act.write, seen) is not None

    assert covers("a.txt") and covers("a.txt", "plain.md") and covers("plain.md", "a.txt")
    assert not covers("a.txt", "b.txt") and not covers("b.txt", "a.txt")
    assert not covers("a.txt", "no.txt") and not covers("no.txt")
    assert not covers("plain.md"), "nothing was asked, so nothing is answered"


# ── commands ────────────────────────────────────────────────────────────────


def test_a_command_needs_a_rule_for_its_program_and_for_the_whole_of_it() -> None:
    policy = Policy.default()
    assert command(memory(("exec", "pytest*")), policy, "pytest", "-q") == "pytest*"
    assert command(memory(("exec", "pytest"), ("exec", "pytest -q")), policy, "pytest", "-q") == "pytest -q"
    assert command(memory(("exec", "pytest")), policy, "pytest", "-q") is None
    assert command(memory(("write", "*"), ("read", "*")), policy, "pytest") is None
    assert command(memory(("exec", "*")), Policy.permissive(), "pytest") is None, "nobody asks there"


@pytest.mark.parametrize("glob", ["*", "python*", "python *"])
def test_a_broad_rule_does_not_open_what_a_program_runs_inside(glob: str) -> None:
    known = memory(("exec", glob), ("exec", "python"))
    assert command(known, Policy.default(), "python", "-c", "print(1)") is None
    allowed = Policy.permissive().layer("run").allow_exec("*")
    assert command(known, allowed, "python", "-c", "print(1)") is None


def test_what_is_spelled_out_is_meant_also_where_only_the_program_asks_by_what_it_may_hide() -> None:
    spelled = ("exec", "python -c 'print(1)'")
    assert command(memory(spelled, ("exec", "python")), Policy.default(), "python", "-c", "print(1)") == spelled[1]
    allowed = Policy.permissive().layer("run").allow_exec("*")
    assert command(memory(spelled), allowed, "python", "-c", "print(1)") == spelled[1]
    assert command(memory(spelled), allowed, "python", "-c", "print(2)") is None


def test_what_runs_inside_needs_a_rule_of_its_own() -> None:
    policy = Policy.default()
    assert command(memory(("exec", "env"), ("exec", "env *")), policy, "env", "rm", "x") is None
    outer = (("exec", "timeout"), ("exec", "timeout 5 ls*"))
    assert command(memory(*outer), policy, "timeout", "5", "ls") is None
    assert command(memory(*outer, ("exec", "ls*")), policy, "timeout", "5", "ls") is not None


def test_a_spelled_rule_does_not_do_away_with_a_default_that_denies_what_runs_inside() -> None:
    policy = Policy.from_dict(
        {
            "defaults": {"exec": "deny"},
            "layers": [{"name": "run", "rules": [{"act": "exec", "effect": "ask", "glob": "timeout*"}]}],
        }
    )
    argv = ("timeout", "60", "rm", "x")
    assert effect_of(judge_command(policy, argv)) is Effect.deny
    assert command(memory(("exec", "timeout"), ("exec", "timeout 60 rm x"), ("exec", "*")), policy, *argv) is None


def test_several_commands_need_a_rule_for_each_that_asks() -> None:
    policy = Policy.permissive().layer("run").ask_exec("mypy*").ask_exec("black*")

    def covers(known: Memory, *lines: str) -> str | None:
        found = known.covers_commands(policy, [(line.split(), judge_command(policy, line.split())) for line in lines])
        return None if found is None else found.rule

    known = memory(("exec", "black*"))
    assert covers(known, "ls", "black x") == "black*" and covers(known, "black x", "ls") == "black*"
    assert covers(known, "black x", "mypy x") is None and covers(known, "mypy x", "black x") is None


# ── nothing that is denied becomes allowed ──────────────────────────────────

ACTS = st.sampled_from(list(Act))
GLOBS = ["*", "a*", "*.txt", "a/b", "a?", "rm*", "rm", "env*", "env rm x", "env", "sh -c 'rm x'", "sh", "x", "a:1"]
EFFECTS = st.sampled_from(["allow", "ask", "deny"])


def sound(act: Act, glob: str) -> bool:
    try:
        Remembered(act, glob)
    except ValueError:
        return False
    return True


KNOWN = [Remembered(act, glob) for act in Act for glob in GLOBS if sound(act, glob)]
RULES = st.lists(st.tuples(st.sampled_from(KNOWN), EFFECTS), max_size=6)
POLICIES = st.builds(
    lambda defaults, rules: Policy.from_dict(
        {
            "defaults": {act.value: effect for act, effect in zip(Act, defaults, strict=True)},
            "layers": [
                {"name": "run", "rules": [{"act": r.act, "effect": effect, "glob": r.glob} for r, effect in rules]}
            ],
        }
    ),
    st.tuples(EFFECTS, EFFECTS, EFFECTS, EFFECTS, EFFECTS),
    RULES,
)
MEMORIES = st.lists(st.sampled_from(KNOWN), max_size=8).map(lambda rules: Memory().adding(rules)[0])
ARGV = st.sampled_from(
    [("rm", "x"), ("/bin/rm", "x"), ("env", "rm", "x"), ("sh", "-c", "rm x"), ("a",), ("timeout", "5", "env", "rm", "x")]
)


@settings(max_examples=400)
@given(POLICIES, POLICIES, MEMORIES, ACTS, st.sampled_from(["a", "a/b", "x.txt", "rm", "a:1", "ab"]), ARGV)
def test_with_whatever_is_remembered_no_deny_of_anybody_is_an_allow(
    given_: Policy, child: Policy, known: Memory, act: Act, target: str, argv: tuple[str, ...]
) -> None:
    for policy in (given_, given_.contain(child)):
        decision = policy.explain(act, target)
        answer = known.covers(act, [Judged(target, decision)])
        assert answer is None or decision.effect is Effect.ask
        judged = judge_command(policy, argv)
        answer = known.covers_command(policy, argv, judged)
        assert answer is None or effect_of(judged) is Effect.ask
        answer = known.covers_commands(policy, [(argv, judged), (("x",), judge_command(policy, ["x"]))])
        assert answer is None or Effect.deny not in (effect_of(judged), effect_of(judge_command(policy, ["x"])))


# ── room ────────────────────────────────────────────────────────────────────


def test_a_rule_is_remembered_once_and_a_run_remembers_so_many_and_no_more() -> None:
    rules = [Remembered(Act.write, f"f{number}") for number in range(MOST_REMEMBERED + 5)]
    known, left = Memory().adding([*rules, *rules[:3]])
    assert known.rules == tuple(rules[:MOST_REMEMBERED]) and left == tuple(rules[MOST_REMEMBERED:])
    assert known.match(Act.write, "f255") is not None and known.match(Act.write, "f256") is None
    again, left = known.adding(rules[:2])
    assert again is known and left == ()


def test_the_characters_of_all_rules_together_are_bounded_too() -> None:
    rules = [Remembered(Act.write, f"{number:03}" + "x" * 3_997) for number in range(10)]
    known, left = Memory().adding(rules)
    assert len(known.rules) == MOST_CHARACTERS // 4_000 and len(left) == 2
    assert known.match(Act.write, rules[0].glob) is not None


# ── stored form ─────────────────────────────────────────────────────────────


def test_rules_are_read_back_as_they_were_written() -> None:
    rules = (Remembered(Act.exec, "pytest*"), Remembered(Act.write, "ä/*"))
    assert from_text(to_text(rules)) == rules
    assert to_text(()) is None and from_text(None) == ()


def test_what_is_no_rule_is_not_written() -> None:
    with pytest.raises(TypeError, match="str"):
        to_text(("pytest*",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "7", "{}", "[7]", '[{"act": "exec"}]', '[{"act": "fly", "glob": "*"}]', '[{"act": "exec", "glob": ""}]',
        '[{"act": "exec", "glob": "*"}, {"act": "exec", "glob": 7}]', '[{"act": "exec", "glob": "*", "more": 1}]',
        "[" * 99_999, 7, b"\xff",
    ],
)  # fmt: skip
def test_a_stored_text_that_cannot_be_read_grants_nothing_and_the_others_count(text: Any) -> None:
    said: list[str] = []
    good = [to_text((Remembered(Act.exec, "ls*"),)), to_text((Remembered(Act.read, "*"),))]
    known = restored([good[0], text, None, good[1]], said.append)
    assert [rule.glob for rule in known.rules] == ["ls*", "*"]
    [line] = said
    assert "cannot be read" in line


def test_what_there_is_no_room_for_is_said() -> None:
    said: list[str] = []
    full, _ = Memory().adding(Remembered(Act.write, f"f{number}") for number in range(MOST_REMEMBERED))
    text = to_text([Remembered(Act.exec, f"p{number}") for number in range(5)])
    assert after(full, text, said.append) is full
    [line] = said
    assert "exec 'p0'" in line and "and 2 more" in line and "256" in line


# ── rules that cover what they came with ────────────────────────────────────


@pytest.mark.parametrize(
    ("act", "target", "globs", "left"),
    [
        (Act.write, "src/a", ["src/*"], []),
        (Act.write, "src/a", ["secrets/*"], ["src/a"]),
        (Act.write, "src/a", ["secrets/*", "src/*"], []),
        (Act.net, "a.org:80", ["a.org"], []),
        # Of a tool that nobody here knows, the target stands for all.
        (Act.exec, "deploy now", ["deploy *"], []),
    ],
)
def test_rules_cover_an_act_when_one_fits_its_target(act, target, globs, left):
    assert uncovered([Remembered(act, glob) for glob in globs], act, target, [], Policy()) == left


@pytest.mark.parametrize(
    ("globs", "commands", "left"),
    [
        (["cat*"], ["cat a"], []),
        (["cat *"], ["cat a"], ["cat"]),
        (["cat"], ["cat a"], ["cat a"]),
        (["cat*"], ["cat a", "wc -l"], ["wc", "wc -l"]),
        (["cat*"], ["cat a", "ls b"], []),
        (["env*"], ["env cat a"], ["cat", "cat a"]),
        # A broad rule does not open what nobody can see into.
        (["python*"], ["python -c 1"], ["python -c 1"]),
        (["python", "python -c 1"], ["python -c 1"], []),
    ],
)
def test_rules_cover_commands_when_nothing_of_them_is_asked_about_again(globs, commands, left):
    policy = Policy().layer("operator").allow_exec("ls*")
    given = [Remembered(Act.exec, glob) for glob in globs]
    assert uncovered(given, Act.exec, " | ".join(commands), [each.split() for each in commands], policy) == left
