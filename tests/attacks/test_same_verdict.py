"""One path has one verdict: by the tools for files, by a redirection, by a gate, and by a command in its sandbox."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import actors
from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Decision, Defaults, Effect, Layer, Policy, Rule, stricter
from actors.agents.ports import Act
from actors.tools.sandbox import detect

PARTS = st.sampled_from(
    ["..", ".", "", "sub", "deep", "a.txt", "out", "file", "up", "to_root", ".env", "private", "p.txt", "env_link", "private_link",
     "pem_link", "server.pem", "secret", "key.txt", "new", "workspace", "chain", "p_link"]
)  # fmt: skip
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
INSIDE = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def got_in(told: str) -> bool:
    """Tell whether the path was taken, whatever was found there."""
    refused = ("leads out", "policy", "denied", "may not", "parts on its way", "not a directory", "links")
    return not (told.startswith(("refused", "errored")) and any(word in told for word in refused))


@INSIDE
@given(PATHS)
def test_a_path_has_one_verdict_by_tools_redirections_and_gates(world: Any, path: str) -> None:
    async def all_ways() -> None:
        try:
            relative = None if not path.strip("/") else path
            reads = [got_in(await world.read(path)), got_in(await world.contains(path))] if relative else []
            if relative:
                reads.append(got_in(await world.shell(f"cat < '{path}'")))
            assert len(set(reads)) <= 1, (path, reads)
            if relative:
                written, redirected = await world.write(path), await world.redirect_out(path)
                # What the first one made may be the very thing that the second would walk through.
                made_in_the_way = got_in(written) and "not a directory" in redirected
                assert made_in_the_way or got_in(written) == got_in(redirected), (path, written, redirected)
        finally:
            assert world.escapes() == []

    trio.run(all_ways)


@pytest.mark.skipif(not detect().namespaces and detect().bubblewrap is None, reason="nothing here hides files from commands")
@FEW
@given(PATHS.filter(lambda path: path.strip("/.") and "\0" not in path))
def test_what_the_tools_refuse_no_command_reads_or_changes_in_the_workspace(world: Any, path: str) -> None:
    """A command may read the system around the workspace; in it, and for every write, it has the tools' verdict."""
    policy: Policy = world.context.policy
    world.context.confinement = Confinement(ExecSandbox.workspace_write, policy)

    async def both() -> None:
        by_tool = await world.read(path)
        by_command = await world.exec("cat", path)
        if "policy" in by_tool or "denied" in by_tool:
            assert "canary-denied-inside" not in by_command
        # And what the tool may read the command reads too: the boundary is no wall around honest work.
        # Only the system wants a directory before a last "/" or "/.".
        if by_tool.endswith("\ninside\n") and not path.endswith(("/", "/.")):
            assert by_command.endswith("inside\n")
        await world.exec("cp", "a.txt", path)
        # A shell that asks nobody, in the same sandbox.
        await world.exec("dd", "if=a.txt", f"of={path}")
        assert world.escapes() == []

    trio.run(both)


# ── policies ────────────────────────────────────────────────────────────────

ACTS = st.sampled_from(list(Act))
EFFECTS = st.sampled_from(list(Effect))
GLOBS = {
    Act.read: ["*", "a", "*.b", "a/*", "?"], Act.write: ["*", "a", "*.b", "a/*", "?"], Act.exec: ["*", "a", "a *", "?"],
    Act.net: ["*", "a", "*.b", "a:1"], Act.spawn: ["*", "a", "?"],
}  # fmt: skip
RULES = ACTS.flatmap(lambda act: st.builds(Rule, st.just(act), EFFECTS, st.sampled_from(GLOBS[act])))
LAYERS = st.builds(Layer, st.sampled_from(["l", "m"]), st.lists(RULES, max_size=4).map(tuple))
POLICIES = st.builds(Policy, st.lists(LAYERS, max_size=3).map(tuple), st.builds(Defaults, *[EFFECTS] * 5))
TARGETS = st.sampled_from(["a", "a/a", "x.b", "a a", "a:1", "b", "x/y/a", "host.b:443"])
# A tree: each node is what an agent asks for, and its children.
TREES = st.recursive(st.tuples(POLICIES, st.just(())), lambda below: st.tuples(POLICIES, st.lists(below, max_size=3).map(tuple)), max_leaves=8)
ORDER = [Effect.allow, Effect.ask, Effect.deny]


def descendants(policy: Policy, tree: Any) -> Iterator[tuple[Policy, Policy]]:
    """Give each agent's policy with its parent's."""
    asked, below = tree
    own = policy.contain(asked)
    yield policy, own
    for child in below:
        yield from descendants(own, child)


@settings(max_examples=300, deadline=None)
@given(POLICIES, TREES, ACTS, TARGETS, st.randoms())
def test_no_descendant_has_an_effective_allow_that_the_root_did_not_grant(
    root: Policy, tree: Any, act: Act, target: str, chance: Any
) -> None:
    given_by_root = root.explain(act, target).effect
    for parent, child in descendants(root, tree):
        got = child.explain(act, target).effect
        assert ORDER.index(got) >= ORDER.index(parent.explain(act, target).effect) >= ORDER.index(given_by_root)
        assert child.check(act, target) == child.explain(act, target)
        # The same after it was stored and read again, and with its layers in any order.
        layers = list(child.layers)
        chance.shuffle(layers)
        assert Policy.from_json(child.to_json()).explain(act, target) == child.explain(act, target)
        assert Policy(tuple(layers), child.defaults).explain(act, target).effect is got


@settings(max_examples=200, deadline=None)
@given(POLICIES, POLICIES, POLICIES, ACTS, TARGETS)
def test_siblings_wishes_contained_in_any_order_come_to_the_same(root: Policy, one: Policy, other: Policy, act: Act, target: str) -> None:
    ways = [root.contain(one).contain(other), root.contain(other).contain(one), root.contain(one.contain(other))]
    assert len({way.explain(act, target).effect for way in ways}) == 1


@settings(max_examples=200, deadline=None)
@given(POLICIES, POLICIES, ACTS, TARGETS)
def test_a_merge_is_no_milder_than_the_stricter_defaults_and_any_deny(one: Policy, other: Policy, act: Act, target: str) -> None:
    merged = one.merge(other)
    assert merged.defaults.of(act) is stricter(one.defaults.of(act), other.defaults.of(act))
    for part in (one, other):
        decision = part.explain(act, target)
        if decision.effect is Effect.deny and decision.layer is not None:
            assert merged.explain(act, target).effect is Effect.deny
    # The control: an allow of the overlay counts, since the same operator wrote it.
    assert Policy.default().merge(Policy.permissive().layer("o").allow_net("*")).explain(Act.net, "a:1") == Decision(Effect.allow, "*", "o")


# ── one guard ───────────────────────────────────────────────────────────────

# What takes a path from a model. The rest of the folder starts processes or looks at places of the operator.
GUARDED = (
    "read_file", "write_file", "edit_file", "patch_file", "list_dir", "search", "shell", "shell_background", "exec", "check", "todo_write",
    "verifying", "compiling",
)  # fmt: skip
OPENERS = {
    "open", "stat", "lstat", "listdir", "scandir", "mkdir", "makedirs", "unlink", "remove", "rename", "replace", "rmdir", "symlink",
    "link", "readlink", "chmod", "chown", "truncate", "utime", "access", "exists", "isfile", "isdir", "islink", "read_text", "write_text",
    "write_bytes", "iterdir", "rglob", "touch", "rmtree", "copy", "copyfile", "move", "is_file", "lexists", "getsize", "samefile",
}  # fmt: skip
# Opened already, or no file at all.
HARMLESS = ("open(descriptor", "os.scandir(descriptor)", "glob.replace(", "context.touch(", "workspace.", "text.replace(")


def opened_by_name(source: str) -> list[str]:
    """Name the calls that would open a file by a path, past the guard."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            by_descriptor = any(word.arg in ("dir_fd", "src_dir_fd") for word in node.keywords)
            text = ast.unparse(node)
            if name in OPENERS and not by_descriptor and not text.startswith(HARMLESS):
                found.append(text)
    return found


@pytest.mark.parametrize("module", GUARDED)
def test_a_tool_opens_nothing_past_the_guard(module: str) -> None:
    source = (Path(actors.__file__).parent / "tools" / f"{module}.py").read_text()
    assert opened_by_name(source) == []


def test_an_opening_past_the_guard_is_seen() -> None:
    source = "import os\ndef f(path):\n    os.stat(path)\n    return open(path).read(), Path(path).read_text(), os.open('a', 0, dir_fd=3)\n"
    assert len(opened_by_name(source)) == 3


def test_the_corpus_is_as_large_as_it_is_said_to_be(request: pytest.FixtureRequest) -> None:
    cases = [item for item in request.session.items if item.name.startswith("test_attack")]
    folders = {item.path.name for item in request.session.items if item.path.parent.name == "attacks"}
    if {"test_paths.py", "test_commands.py", "test_narrowing.py"} <= folders:
        assert len(cases) >= 150
    else:
        pytest.skip("only a part of the corpus is run")
