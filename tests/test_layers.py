"""The direction of imports, and what a pure module may touch.

Walks every import of the package with ast, also those inside functions and
under TYPE_CHECKING, so nothing hides from it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import actors

ROOT = Path(actors.__file__).parent

# Higher numbers may import lower ones; parts of one number never import each other.
LAYERS = {
    "cli": 7,
    "web": 7,
    "testing": 6,
    "assembly": 5,
    "loops": 4,
    "workflows": 4,
    "cluster": 4,
    "providers": 4,
    "tools": 4,
    "store": 4,
    "observe": 4,
    "agents": 3,
    "containment": 2,
    "runtime": 1,
    "errors": 0,
    "halts": 0,
    "ids": 0,
}

# Decisions, codecs and tables: facts and `now` in, a value out.
PURE = [
    "errors",
    "halts",
    "runtime.exits",
    "runtime.journal",
    "runtime.plan",
    "runtime.replay",
    "runtime.restart",
    "runtime.specs",
    "runtime.starting",
    "runtime.stops",
    "runtime.wait_graph",
    "containment.amounts",
    "containment.ledger_state",
    "containment.limits",
    "containment.lines",
    "containment.prices",
    "containment.usage",
    "agents.about",
    "agents.acted_on",
    "agents.agent_files",
    "agents.coming_back",
    "agents.contract",
    "agents.dispositions",
    "agents.edits",
    "agents.end_rows",
    "agents.entry_text",
    "agents.exec_judging",
    "agents.failure_classes",
    "agents.fitting",
    "agents.front_matter",
    "agents.globs",
    "agents.growing",
    "agents.inner_commands",
    "agents.judged_fields",
    "agents.judging",
    "agents.live_states",
    "agents.model_cost",
    "agents.model_input",
    "agents.outcomes",
    "agents.past",
    "agents.per_turn",
    "agents.platform_names",
    "agents.policy",
    "agents.prompt",
    "agents.read_runs",
    "agents.remembered",
    "agents.rewriting",
    "agents.restarting",
    "agents.retrying",
    "agents.risky_names",
    "agents.risky_programs",
    "agents.review_text",
    "agents.roster",
    "agents.routing",
    "agents.rows",
    "agents.rule_globs",
    "agents.secret_values",
    "agents.shell_line",
    "agents.snapshots",
    "agents.spawning",
    "agents.stall",
    "agents.step_digest",
    "agents.step_rows",
    "agents.strict_json",
    "agents.terminal_codec",
    "agents.terminal_slot",
    "agents.terminals",
    "agents.told_programs",
    "agents.transcript",
    "agents.turns",
    "agents.verification",
    "providers.chat_stream",
    "providers.chat_wire",
    "providers.exchange_codec",
    "providers.http_errors",
    "providers.model_names",
    "providers.script_file",
    "store.leases",
    "store.audit_findings",
    "store.audit_steps",
    "store.row_codec",
    "store.schema",
    "tools.arguments",
    "tools.call_filter",
    "tools.git_text",
    "tools.hunks",
    "tools.line_changes",
    "tools.output",
    "tools.sandbox_grants",
    "tools.sandbox_plan",
    "testing.model_script",
]
# What touches the world: clocks, chance, files, processes, sockets, the event loop.
WORLD = {
    "asyncio", "datetime", "httpx", "io", "os", "pathlib", "random", "secrets", "select", "shutil", "signal",
    "socket", "sqlite3", "sqlite_utils", "subprocess", "tempfile", "threading", "time", "trio", "urllib",
}  # fmt: skip
# A pure module may know a type of the world without touching it.
ALLOWED = {
    # Splits `Cancelled` off exception groups.
    ("runtime.exits", "trio"),
    # Holds paths as values and opens none.
    ("agents.contract", "pathlib"),
    # Counts from a date that a header names; the clock is elsewhere.
    ("providers.http_errors", "datetime"),
    # Reads the exact names of the tables; the connection is elsewhere.
    ("store.row_codec", "sqlite3"),
}


def modules() -> dict[str, Path]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write whole names"
            yield node.module or ""


def layer_of(module: str) -> int:
    return LAYERS[module.split(".")[0]]


def ours(name: str) -> str | None:
    return name.removeprefix("actors.") if name.startswith("actors.") else None


def upward(module: str, path: Path) -> list[str]:
    here = module.split(".")[0]
    wrong = []
    for name in imports(path):
        target = ours(name)
        if target is None:
            continue
        part = target.split(".")[0]
        if part != here and layer_of(target) >= layer_of(module) and not (layer_of(target) == layer_of(module) == 0):
            wrong.append(f"{module} imports {target}")
    return wrong


def test_every_part_of_the_package_has_a_layer() -> None:
    assert {module.split(".")[0] for module in modules() if module} <= set(LAYERS)


def test_imports_go_right_only() -> None:
    wrong = [line for module, path in modules().items() if module for line in upward(module, path)]
    assert wrong == []


def test_an_upward_import_is_found_also_inside_a_function(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden.py"
    hidden.write_text("def f():\n    from actors.cli.main import main\n    return main\n")
    assert upward("runtime.hidden", hidden) == ["runtime.hidden imports cli.main"]
    beside = tmp_path / "beside.py"
    beside.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from actors.tools.exec import Exec\n")
    assert upward("providers.beside", beside) == ["providers.beside imports tools.exec"]


def test_no_module_imports_itself_in_a_circle() -> None:
    known = modules()
    graph = {
        module: {target for name in top_level_imports(path) if (target := ours(name)) in known}
        for module, path in known.items()
        if module
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for target in graph.get(module, ()):
                visit(target, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def top_level_imports(path: Path) -> Iterator[str]:
    """Imports that run when the module is loaded; TYPE_CHECKING blocks make no circle at run time."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_touches_nothing(module: str) -> None:
    path = modules()[module]
    touched = {name.split(".")[0] for name in imports(path)} & WORLD
    assert {name for name in touched if (module, name) not in ALLOWED} == set()
    awaits = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Await | ast.AsyncFunctionDef)]
    assert awaits == []


def test_a_module_that_says_that_it_is_pure_is_held_to_it() -> None:
    says = {
        module
        for module, path in modules().items()
        if (told := ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))) and told.split("\n")[0].endswith(" Pure.")
    }
    assert says and says <= set(PURE)


def test_package_files_hold_one_docstring() -> None:
    for path in ROOT.rglob("__init__.py"):
        if path.parent == ROOT:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        assert len(body) == 1 and isinstance(body[0], ast.Expr), path
