"""No credential of the runtime's environment is found in anything that a run leaves, tells or starts.

Every byte is searched: the file of the store and its log, what the command
prints, what it exports, recordings, what the model was sent, and what commands
printed into the workspace.
"""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.agents.ports import (
    Approval,
    ApprovalRequest,
    Completion,
    CompletionRequest,
    Observation,
    ObservationKind,
    ToolContext,
    ToolSpec,
)
from actors.agents.verification import Verification
from actors.assembly.running import run_tree
from actors.containment.limits import Containment
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.openai_chat import OpenAIChat
from actors.providers.recording_provider import RecordingProvider
from actors.providers.replay_provider import ReplayProvider
from actors.providers.script_file import ScriptedAnswer
from actors.providers.scripted import Scripted
from actors.store.store import Store
from actors.testing.model_script import Answer, SaidCall
from actors.testing.model_server import ModelServer, open_model_server
from actors.tools.toolbox import builtin_tools

CANARIES = {
    "OPENAI_API_KEY": "sk-canary-openai-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-canary-0123456789",
    "GITHUB_TOKEN": "ghp_canary0123456789abcdef",
    "AWS_SECRET_ACCESS_KEY": "canary/aws+secret=0123456789",
    "DB_PASSWORD": 'canary "quoted" p@ss\\word',
    "FTP_PROXY": "ftp://canary-user-0123:canary-pass-0123@proxy.invalid",
}
# What must be nowhere. Of an address the parts before its host.
SECRETS = [*(value for name, value in CANARIES.items() if name != "FTP_PROXY"), "canary-user-0123", "canary-pass-0123"]
LIMITS = Containment(10, 4, 2, 10**9)

TASK = """
[contract]
goal = "look around"
root = "work"
max_steps = 6
max_retries = 1
retry = {{ base = 0.01 }}
exec_sandbox = "{sandbox}"
[contract.verify]
kind = "command"
argv = ["sh", "-c", "env > gate.txt; exit 1"]
[containment]
max_total_agents = 3
max_concurrent = 2
max_depth = 1
max_total_tokens = 1_000_000
[provider]
kind = "compatible"
model = "m"
base_url = "{url}"
[policy.defaults]
read = "allow"
write = "allow"
exec = "allow"
[run]
approve = "all"
"""


def found_in(data: bytes) -> list[str]:
    """Name the canaries in some bytes, as they are, escaped for JSON, or in base 64."""
    names = []
    for secret in SECRETS:
        spelled = {secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret)[1:-1])[1:-1]}
        coded = base64.b64encode(secret.encode())[:-4]
        if coded in data or any(each.encode() in data for each in spelled):
            names.append(secret)
    return names


def searched(*folders: Path) -> dict[str, list[str]]:
    """Search every file below some folders."""
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert files
    return {str(file): found for file in files if (found := found_in(file.read_bytes()))}


def left_in(folder: Path) -> bytes:
    """Give every byte below a folder."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.fixture
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    # The control: without it all tests below would pass by finding nothing.
    for place, secret in enumerate(SECRETS):
        (tmp_path / f"{place}").write_text(json.dumps({"a": secret}))
    assert list(searched(tmp_path).values()) and len(searched(tmp_path)) == len(SECRETS)
    done = subprocess.run(["env", "-0"], env={**os.environ, **CANARIES}, capture_output=True, check=True)
    assert found_in(done.stdout) == SECRETS


async def actors(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return await trio.run_process(
        [sys.executable, "-c", "from actors.cli.main import main; main()", *arguments],
        cwd=folder, check=False, capture_stdout=True, capture_stderr=True, env={**os.environ, **CANARIES},
    )  # fmt: skip


def exec_call(*argv: str) -> SaidCall:
    return SaidCall("exec", json.dumps({"argv": argv}))


EVERYTHING = "tr '\\0' '\\n' < /proc/$PPID/environ; env; set; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; true"
ECHO = Answer(status=401, text=" / ".join(f"bad key {secret}" for secret in SECRETS))
LOOKING = [
    Answer(
        text=f"I was told {CANARIES['OPENAI_API_KEY']}",
        calls=(
            exec_call("env"),
            exec_call("sh", "-c", "env > env.txt; set >> env.txt"),
            SaidCall("shell", json.dumps({"line": "env > line.txt"})),
            SaidCall("shell_start", json.dumps({"line": "env > started.txt"})),
            SaidCall("spawn_agent", json.dumps({"goal": "look too", "verify": {"kind": "command", "argv": ["env"]}})),
        ),
    ),
    Answer(calls=(exec_call("env"), SaidCall("grep", json.dumps({"pattern": "canary"})))),
    Answer(status=500, text=ECHO.text),
    Answer(text="nothing here"),
]


def answering(script: list[Answer]) -> Any:
    """Answer as told, and refuse the key, loudly, from then on."""
    return lambda _body, number: script[number - 1] if number <= len(script) else ECHO


@pytest.mark.parametrize("stream", [False, True])
async def test_no_canary_is_in_what_a_run_of_the_command_leaves_or_prints(tmp_path: Path, stream: bool) -> None:
    (tmp_path / "work").mkdir()
    async with open_model_server(answering(LOOKING)) as server:
        (tmp_path / "task.toml").write_text(TASK.format(url=server.base_url, sandbox="full_access"))
        flag = "--stream-json" if stream else "--json"
        done = await actors(tmp_path, "run", "task.toml", flag, "--record", "run.jsonl")
        _told_right(server)
    prints = [done]
    run_id = json.loads(done.stdout.splitlines()[-1] if stream else done.stdout)["run_id"]
    for command in (
        ("trace", run_id), ("trace", run_id, "--json"), ("trace", run_id, "--export"), ("trace", run_id, "--check"),
        ("show", run_id), ("show", run_id, "--json"), ("list",), ("list", "--json"), ("inbox", "--json"),
        ("resume", run_id, "--json"), ("reopen", run_id, "--json"), ("validate", "task.toml"),
        ("run", "task.toml", "--replay", "run.jsonl", "--store", "again.db", "--json"),
    ):  # fmt: skip
        prints.append(await actors(tmp_path, *command))  # noqa: PERF401  # one after the other
    assert {place: found for place, each in enumerate(prints) if (found := found_in(each.stdout + each.stderr))} == {}
    assert not any(b"Traceback" in each.stderr for each in prints)
    assert searched(tmp_path) == {}
    # And there was something to find: commands ran, and the refusal is told.
    for name in ("env.txt", "line.txt", "started.txt", "gate.txt"):
        assert "PATH=" in (tmp_path / "work" / name).read_text(), name
    assert b"bad key [key]" in b"".join(each.stdout for each in prints)


def _told_right(server: ModelServer) -> None:
    """The key came in the one header that it belongs into, and in no body."""
    assert server.calls > 4
    assert {headers.get("authorization") for headers in server.headers} == {f"Bearer {CANARIES['OPENAI_API_KEY']}"}
    assert found_in(json.dumps(list(server.requests)).encode()) == []


async def test_a_command_behind_a_sandbox_cannot_read_the_environment_of_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    script = [Answer(calls=(exec_call("sh", "-c", f"({EVERYTHING}) | base64 > seen.txt"),)), Answer(text="done")]
    async with open_model_server(answering(script)) as server:
        (tmp_path / "task.toml").write_text(TASK.format(url=server.base_url, sandbox="workspace_write"))
        done = await actors(tmp_path, "run", "task.toml", "--json", "--quiet")
    if b"sandbox" in done.stdout and not (tmp_path / "work" / "seen.txt").exists():
        pytest.skip("this machine has no boundary for commands")
    seen = base64.b64decode((tmp_path / "work" / "seen.txt").read_bytes())
    assert b"PATH=" in seen and found_in(seen) == []


PRINTS_ALL = """tr '\\\\0' '\\\\n' < /proc/$PPID/environ; exit 1"""


@pytest.mark.parametrize("whose", ["operator", "model"])
async def test_what_a_check_prints_is_hidden_where_it_is_told(tmp_path: Path, whose: str) -> None:
    (tmp_path / "work").mkdir()
    task, mine = TASK, "env > gate.txt; exit 1"
    assert mine in task
    if whose == "operator":
        task = task.replace(mine, PRINTS_ALL)
    asked = {"goal": "look too", "verify": {"kind": "command", "argv": ["sh", "-c", PRINTS_ALL.replace("\\\\", "\\")]}}
    script = [Answer(calls=(SaidCall("spawn_agent", json.dumps(asked)),)), Answer(text="child"), Answer(text="done")]
    async with open_model_server(answering(script)) as server:
        (tmp_path / "task.toml").write_text(task.format(url=server.base_url, sandbox="full_access"))
        done = await actors(tmp_path, "run", "task.toml", "--stream-json", "--record", "run.jsonl")
        assert found_in(json.dumps(list(server.requests)).encode()) == []
    run_id = json.loads(done.stdout.splitlines()[-1])["run_id"]
    trace = await actors(tmp_path, "trace", run_id, "--export")
    assert b"OPENAI_API_KEY=[secret]" in done.stdout and b"OPENAI_API_KEY=[secret]" in trace.stdout
    assert found_in(done.stdout + done.stderr + trace.stdout + trace.stderr) == [] and searched(tmp_path) == {}


@pytest.mark.usefixtures("_secrets")
async def test_a_reviewer_is_not_sent_what_a_changed_file_holds_of_a_credential(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text(f"before: {SECRETS[0]}")
    (tmp_path / "work" / "b").write_text(f"after: {SECRETS[1]}")
    contract = TaskContract.workspace("change it", tmp_path / "work", Verification.review("is it so?"), max_steps=1)
    calls = (("write_file", {"path": "a", "content": "between"}), ("exec", {"argv": ["cp", "b", "a"]}))
    script = Scripted([ScriptedAnswer(calls=calls)])
    said = json.dumps({"verdict": "no", "reason": f"I see {SECRETS[2]}"})
    reviewer = Scripted([ScriptedAnswer(text=said)], model="another")
    async with Store.open(tmp_path / "runs.db") as store:
        result = await run_tree(contract, script, store, Policy.permissive(), ApproveAll(), LIMITS, reviewer=reviewer)
        [detail] = [row[0] for row in store.select("SELECT detail FROM gate_attempts WHERE run_id = ?", (result.run_id,))]
        kept = store.select("SELECT before, state FROM snapshots")
    assert "I see [secret]" in detail and len(kept) == 1 and found_in(repr(kept).encode()) == []
    sent = repr(reviewer.requests)
    assert "it held a credential" in sent and "after: [secret]" in sent and found_in(sent.encode()) == []


@pytest.mark.usefixtures("_secrets")
async def test_no_canary_is_kept_of_a_line_that_a_checker_or_a_patch_quotes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.bash").write_text(f"echo {SECRETS[0]} (\n")
    patch = {"path": "a.bash", "patch": "@@ -1 +1 @@\n-echo x (\n+x\n"}
    script = Scripted([ScriptedAnswer(calls=(("check", {}), ("patch_file", patch))), ScriptedAnswer(text="done")])
    (tmp_path / "store").mkdir()
    contract = TaskContract.workspace("look", tmp_path / "work")
    async with Store.open(tmp_path / "store" / "runs.db") as store:
        result = await run_tree(contract, script, store, Policy.permissive(), ApproveAll(), LIMITS)
        texts = [each.text for each in store.observations(result.run_id)]
        assert searched(tmp_path / "store") == {}
    # Each quotes it, or there would be nothing to hide.
    assert "`echo [secret] ('" in texts[0] and 'line 1 of the file is "echo [secret] ("' in texts[1]
    assert found_in(repr((texts, script.requests)).encode()) == [] and searched(tmp_path / "store") == {}


async def test_what_a_command_reads_of_the_runtime_without_a_sandbox_is_hidden_in_what_it_prints(tmp_path: Path) -> None:
    # Only in what it prints as it is: there is no boundary here, and the threat model says so.
    (tmp_path / "work").mkdir()
    script = [Answer(calls=(exec_call("sh", "-c", EVERYTHING),)), Answer(text="done")]
    async with open_model_server(answering(script)) as server:
        (tmp_path / "task.toml").write_text(TASK.format(url=server.base_url, sandbox="full_access"))
        done = await actors(tmp_path, "run", "task.toml", "--json", "--quiet")
    assert found_in(done.stdout + done.stderr) == [] and searched(tmp_path) == {}


@pytest.mark.parametrize(
    "address",
    [
        "http://user:{secret}@127.0.0.1:1/v1",
        "http://{secret}@127.0.0.1:1/v1",
        "http://127.0.0.1:1/v1?key={secret}",
        "http://127.0.0.1:1/v1#{secret}",
        "http://127.0.0.1:x{secret}/v1",
        "{secret}",
    ],
)
async def test_an_address_with_a_key_in_it_is_refused_without_showing_it(tmp_path: Path, address: str) -> None:
    (tmp_path / "work").mkdir()
    secret = "sk-canary-in-address-0123456789"
    (tmp_path / "task.toml").write_text(TASK.format(url="http://127.0.0.1:1/v1", sandbox="full_access"))
    told = address.format(secret=secret)
    for arguments in (("run", "task.toml", "--set"), ("validate", "task.toml", "--set")):
        done = await actors(tmp_path, *arguments, f'provider.base_url="{told}"', *(("--json",) if arguments[0] == "run" else ()))
        assert secret.encode() not in done.stdout + done.stderr
    (tmp_path / "task.toml").write_text(TASK.format(url=told, sandbox="full_access"))
    done = await actors(tmp_path, "run", "task.toml", "--json")
    assert done.returncode == 2 and secret.encode() not in done.stdout + done.stderr
    (tmp_path / "task.toml").unlink()
    assert secret.encode() not in left_in(tmp_path)


# ── embedded: parts of the caller's own that are careless ───────────────────


class Careless:
    """A tool that fails with a credential in its text, or prints one."""

    spec = ToolSpec("careless", "look", {"type": "object"})
    read_only = True

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        text = "\n".join(f"Authorization: Bearer {secret}" for secret in SECRETS)
        if arguments.get("raise"):
            raise RuntimeError(text)
        return Observation(ObservationKind.tool, text, text)


class CarelessApprover:
    async def decide(self, request: ApprovalRequest) -> Approval:
        raise RuntimeError(" ".join(SECRETS))


class CarelessProvider:
    """A provider of the caller's own: its errors hold what it was given."""

    name = "own"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def complete(self, request: CompletionRequest) -> Completion:
        raise self._error


class Watching:
    def __init__(self) -> None:
        self.told: list[Mapping[str, Any]] = []

    def event(self, event: Mapping[str, Any]) -> None:
        self.told.append(event)


class CarelessObserver:
    def event(self, event: Mapping[str, Any]) -> None:
        raise RuntimeError(" ".join(SECRETS))


ERRORS = [
    ProviderError(ProviderErrorKind.auth, f"401 {SECRETS}"),
    ProviderError(ProviderErrorKind.request, " ".join(SECRETS)),
    RuntimeError(" ".join(SECRETS)),
    AssertionError(" ".join(SECRETS)),
    ExceptionGroup(SECRETS[0], [ValueError(secret) for secret in SECRETS]),
]


@pytest.mark.usefixtures("_secrets")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_no_canary_is_kept_of_a_provider_that_fails_with_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    caplog.set_level("DEBUG")
    observer = Watching()
    async with Store.open(tmp_path / "runs.db") as store:
        (tmp_path / "work").mkdir()
        contract = TaskContract.workspace("look", tmp_path / "work", max_retries=0)
        result = await run_tree(
            contract, CarelessProvider(error), store, Policy.permissive(), ApproveAll(), LIMITS, observer=observer
        )
        assert found_in(repr((result.outcome, result.terminal, result.halt)).encode()) == []
        assert searched(tmp_path) == {}, "the log of the store, while it is open"
    assert searched(tmp_path) == {}
    assert found_in(repr(observer.told).encode()) == [] and found_in(caplog.text.encode()) == []
    assert result.outcome.message


@pytest.mark.usefixtures("_secrets")
@pytest.mark.parametrize("observer", [Watching, CarelessObserver])
async def test_no_canary_is_kept_of_a_tool_or_an_approver_that_fails_with_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, observer: type[Watching | CarelessObserver]
) -> None:
    caplog.set_level("DEBUG")
    (tmp_path / "work").mkdir()
    calls = [("careless", {}), ("careless", {"raise": True}), ("write_file", {"path": "a", "content": "b"})]
    calls.append(("spawn_agent", {"goal": "child", "verify": {"kind": "none"}}))
    script = Scripted([ScriptedAnswer(calls=tuple(calls)), ScriptedAnswer(text="done")])
    provider = RecordingProvider(script, tmp_path / "run.jsonl")
    policy = Policy.permissive().layer("operator").ask_write("*").ask_spawn("*")
    contract = TaskContract.workspace("look", tmp_path / "work")
    async with Store.open(tmp_path / "runs.db") as store:
        result = await run_tree(
            contract, provider, store, policy, CarelessApprover(), LIMITS,
            tools=(*builtin_tools(), Careless()), observer=observer(),
        )  # fmt: skip
        texts = [each.text for each in store.observations(result.run_id)]
        assert searched(tmp_path) == {}
    await provider.aclose()
    assert searched(tmp_path) == {}
    assert found_in(caplog.text.encode()) == [] and "careless" in caplog.text
    assert sum("[secret]" in text for text in texts) == 4, texts
    assert found_in(repr(script.requests).encode()) == []


@pytest.mark.usefixtures("_secrets")
async def test_no_canary_is_kept_of_what_a_provider_of_ones_own_answers(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    # Its calls are asked about, run and told of.
    calls = [("write_file", {"path": "a", "content": SECRETS[0]}), (SECRETS[1], {}), ("exec", {"argv": ["echo", SECRETS[2]]})]
    script = Scripted([ScriptedAnswer(text=f"I say {SECRETS[1]}", calls=tuple(calls)), ScriptedAnswer(text=f"so {SECRETS[2]}")])
    provider, observer = RecordingProvider(script, tmp_path / "run.jsonl"), Watching()
    policy = Policy.permissive().layer("operator").ask_write("*")
    contract = TaskContract.workspace("look", tmp_path / "work")
    async with Store.open(tmp_path / "runs.db") as store:
        result = await run_tree(contract, provider, store, policy, ApproveAll(), LIMITS, observer=observer)
        assert searched(tmp_path) == {}
    await provider.aclose()
    assert searched(tmp_path) == {} and (tmp_path / "work" / "a").read_text() == "[secret]"
    assert found_in(repr((result, observer.told, script.requests)).encode()) == []
    assert "so [secret]" in repr(result)
    (tmp_path / "work" / "a").unlink()
    async with Store.open(tmp_path / "again.db") as store, ReplayProvider(tmp_path / "run.jsonl") as replay:
        again = await run_tree(contract, replay, store, policy, ApproveAll(), LIMITS)
    assert again.said == result.said


async def test_a_key_that_was_given_in_python_is_in_nothing_that_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    key = "sk-given-in-python-0123456789"
    (tmp_path / "work").mkdir()
    answers = [Answer(text=f"your key is {key}", calls=(exec_call("echo", key),)), Answer(status=403, text=f"{key} is over")]
    async with open_model_server(answers) as server:
        async with RecordingProvider(
            OpenAIChat(server.base_url, api_key=key, model="m"), tmp_path / "run.jsonl"
        ) as provider:
            async with Store.open(tmp_path / "runs.db") as store:
                contract = TaskContract.workspace("look", tmp_path / "work", max_retries=0)
                result = await run_tree(contract, provider, store, Policy.permissive(), ApproveAll(), LIMITS)
    left = left_in(tmp_path)
    assert key.encode() not in left + caplog.text.encode() + repr(result).encode()
    assert b"[key] is over" in left
