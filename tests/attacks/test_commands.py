"""Commands: an operator denied ``touch``; no line, wrapper or argument runs it without somebody being asked.

The control of each case: a shell, as a tool without a guard would use one, runs
the very line, and the proof lies in the workspace.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.exec_judging import judge_command, may_run
from actors.agents.policy import Effect, Policy
from actors.agents.ports import Act
from actors.agents.verification import Verification
from actors.tools.edit_file import EditFile
from actors.tools.patch_file import PatchFile
from actors.tools.process import environment
from actors.tools.write_file import WriteFile

PROOF = "proof-that-it-ran"
TOUCH = f"touch {PROOF}"
MADE = f"open({PROOF!r}, 'w')"


@attrs.frozen
class Attack:
    """A line for the tool `shell`, or an argv for `exec`; ``needs`` is a program that the control runs."""

    name: str
    line: str = ""
    argv: tuple[str, ...] = ()
    needs: str = ""


LINES = [
    Attack("two commands", f"git --version; {TOUCH}"),
    Attack("and", f"echo a && {TOUCH}"),
    Attack("or", f"false || {TOUCH}"),
    Attack("pipe", f"echo a | {TOUCH}"),
    Attack("the next line", f"echo a\n{TOUCH}"),
    Attack("a carriage return", f"echo a;\r\n{TOUCH}"),
    Attack("substitution", f"echo $({TOUCH})"),
    Attack("backticks", f"echo `{TOUCH}`"),
    Attack("in double quotes", f'echo "$({TOUCH})"'),
    Attack("backticks in double quotes", f'echo "`{TOUCH}`"'),
    Attack("in a process", f"cat <({TOUCH})"),
    Attack("in the background", f"echo a & {TOUCH}"),
    Attack("a subshell", f"({TOUCH})"),
    Attack("a group", f"{{ {TOUCH}; }}"),
    Attack("a function", f"f() {{ {TOUCH}; }}; f"),
    Attack("if", f"if true; then {TOUCH}; fi"),
    Attack("a loop", f"for x in 1; do {TOUCH}; done"),
    Attack("while", f"while {TOUCH}; do break; done"),
    Attack("case", f"case a in a) {TOUCH};; esac"),
    Attack("negated", f"! {TOUCH}"),
    Attack("in arithmetic", f"echo $(( $( {TOUCH} ; echo 1) ))"),
    Attack("a default of a variable", f"echo ${{x:-$({TOUCH})}}"),
    Attack("a here string", f"cat <<< $({TOUCH})"),
    Attack("a here document", f"cat <<E\n$({TOUCH})\nE"),
    Attack("a variable as program", f"x=touch; $x {PROOF}"),
    Attack("an assignment before it", f"A=1 {TOUCH}"),
    Attack("eval", f"eval {TOUCH}"),
    Attack("command", f"command {TOUCH}"),
    Attack("builtin exec", f"exec {TOUCH}"),
    Attack("trap", f"trap '{TOUCH}' EXIT"),
    Attack("an alias", f"shopt -s expand_aliases\nalias x='{TOUCH}'\nx"),
    Attack("quotes inside the name", f"to''uch {PROOF}"),
    Attack("the name in quotes", f"'touch' {PROOF}"),
    Attack("a backslash inside the name", f"to\\uch {PROOF}"),
    Attack("dollar quotes", f"$'\\x74ouch' {PROOF}"),
    Attack("braces", f"{{touch,{PROOF}}}"),
    Attack("a pattern as program", f"/bin/t?uch {PROOF}"),
    Attack("a redirection first", f"> a.log {TOUCH}"),
    Attack("a redirection makes the file", f"echo a > {PROOF}x && mv {PROOF}x {PROOF}; {TOUCH}"),
    Attack("a script that it writes", f"echo '{TOUCH}' > s.sh && sh s.sh"),
    Attack("a script by its name", f"echo '{TOUCH}' > s.sh && chmod +x s.sh && ./s.sh"),
    Attack("piped to a shell", f"echo '{TOUCH}' | sh"),
    Attack("piped to a shell by its path", f"echo '{TOUCH}' | /bin/sh -s"),
    Attack("read by a shell", f"echo '{TOUCH}' > s.sh; sh < s.sh"),
    Attack("piped to a shell that nobody named", f"echo '{TOUCH}' | linux64", needs="linux64"),
    Attack("piped to a shell of another name", f"echo '{TOUCH}' | setarch x86_64", needs="setarch"),
]  # fmt: skip
WRAPPED = [
    Attack("env", argv=("env", "touch", PROOF)),
    Attack("env with a variable", argv=("env", "A=1", "touch", PROOF)),
    Attack("env -S", argv=("env", "-S", TOUCH)),
    Attack("env -i", argv=("env", "-i", "/usr/bin/touch", PROOF)),
    Attack("env in env", argv=("env", "env", "env", "touch", PROOF)),
    Attack("by its path", argv=("/usr/bin/touch", PROOF)),
    Attack("by a path with dots", argv=("/usr/bin/../bin/touch", PROOF)),
    Attack("sh -c", argv=("sh", "-c", TOUCH)),
    Attack("bash -lc", argv=("bash", "-lc", TOUCH), needs="bash"),
    Attack("bash -c behind options", argv=("bash", "--norc", "-e", "-c", TOUCH), needs="bash"),
    Attack("sh -c with exec", argv=("sh", "-c", f"exec {TOUCH}")),
    Attack("sh in sh", argv=("sh", "-c", f"sh -c '{TOUCH}'")),
    Attack("nice", argv=("nice", "-n", "5", "touch", PROOF)),
    Attack("nohup", argv=("nohup", "touch", PROOF)),
    Attack("setsid", argv=("setsid", "-w", "touch", PROOF), needs="setsid"),
    Attack("timeout", argv=("timeout", "5", "touch", PROOF)),
    Attack("timeout with options", argv=("timeout", "-s", "KILL", "5s", "touch", PROOF)),
    Attack("stdbuf", argv=("stdbuf", "-o0", "touch", PROOF)),
    Attack("xargs", argv=("sh", "-c", f"echo {PROOF} | xargs touch")),
    Attack("xargs alone", argv=("xargs", "-a", "names.txt", "touch")),
    Attack("find -exec", argv=("find", ".", "-maxdepth", "0", "-exec", "touch", PROOF, ";")),
    Attack("find -execdir", argv=("find", "names.txt", "-execdir", "touch", PROOF, ";")),
    Attack("find -ok in a pipe", argv=("sh", "-c", f"yes | find . -maxdepth 0 -ok touch {PROOF} \\;")),
    Attack("awk", argv=("awk", f'BEGIN{{system("{TOUCH}")}}'), needs="awk"),
    Attack("sed", argv=("sed", "-n", f"1e {TOUCH}", "names.txt"), needs="sed"),
    Attack("tar", argv=("tar", "-cf", "/dev/null", "--checkpoint=1", f"--checkpoint-action=exec={TOUCH}", "names.txt"), needs="tar"),
    Attack("tar -I", argv=("tar", "-I", f"sh -c '{TOUCH}; cat'", "-cf", "x.tar", "names.txt"), needs="tar"),
    Attack("python -c", argv=(sys.executable, "-c", MADE)),
    Attack("python3 -c", argv=("python3", "-c", MADE), needs="python3"),
    Attack("python with a version", argv=(f"python3.{sys.version_info.minor}", "-c", MADE), needs=f"python3.{sys.version_info.minor}"),
    Attack("python by a script", argv=(sys.executable, "made.py")),
    Attack("perl -e", argv=("perl", "-e", f"open(F, '>{PROOF}')"), needs="perl"),
    Attack("git -c pager", argv=("git", "-c", f"core.pager=sh -c '{TOUCH}'", "-p", "log"), needs="nothing-to-show-it-with"),
    Attack("git -c alias", argv=("git", "-c", f"alias.x=!{TOUCH}", "x"), needs="git"),
    Attack("git -c fsmonitor", argv=("git", "-c", f"core.fsmonitor=sh -c '{TOUCH}'", "status"), needs="git"),
    Attack("git --exec-path", argv=("git", "--exec-path=bin", "x"), needs="git"),
    Attack("git bisect run", argv=("git", "bisect", "run", "touch", PROOF), needs="nothing-to-show-it-with"),
    Attack("git diff by a program of its own", argv=("git", "-c", f"diff.external=sh -c '{TOUCH}'", "diff", "--ext-diff", "--no-index", "names.txt", "made.py"), needs="git"),
    Attack("make", argv=("make", "-f", "Makefile"), needs="make"),
    Attack("make --eval", argv=("make", f"--eval=x:;{TOUCH}", "x"), needs="make"),
    Attack("a program of the workspace", argv=("./bin/git",)),
    Attack("a copy under another name", argv=("./harmless", PROOF)),
    Attack("a link to it", argv=("./linked", PROOF)),
    Attack("the loader", argv=("/lib64/ld-linux-x86-64.so.2", "/usr/bin/touch", PROOF), needs="/lib64/ld-linux-x86-64.so.2"),
    Attack("split -filter", argv=("split", f"--filter={TOUCH}", "names.txt"), needs="split"),
    Attack("sort by a program", argv=("sort", "-S", "1b", f"--compress-program={TOUCH}", "many.txt"), needs="nothing-to-show-it-with"),
    Attack("vi", argv=("vi", "-es", "-c", f"!{TOUCH}", "-c", "q"), needs="vi"),
    Attack("busybox", argv=("busybox", "touch", PROOF), needs="busybox"),
    Attack("script", argv=("script", "-qc", TOUCH, "/dev/null"), needs="script"),
    Attack("flock", argv=("flock", "names.txt", "touch", PROOF), needs="flock"),
    Attack("watch", argv=("watch", "-n", "1", TOUCH), needs="nothing-to-show-it-with"),
    Attack("ssh by a proxy", argv=("ssh", "-o", f"ProxyCommand={TOUCH}", "x"), needs="ssh"),
    Attack("rsync -e", argv=("rsync", "-e", f"sh -c '{TOUCH}'", "x:y", "."), needs="rsync"),
    Attack("unshare", argv=("unshare", "touch", PROOF), needs="unshare"),
    Attack("chroot", argv=("chroot", "/", "sh", "-c", f"cd $OLDPWD; {TOUCH}"), needs="nothing-to-show-it-with"),
    Attack("sudo", argv=("sudo", "-n", "touch", PROOF), needs="sudo"),
    Attack("git by an option of one letter", argv=("git", "ls-remote", f"--u={TOUCH};", "."), needs="git"),
    Attack("git clone by an option of one letter", argv=("git", "clone", f"--u={TOUCH};", ".", "cloned"), needs="git"),
    Attack("find with a plus that ends nothing", argv=("find", "names.txt", "-exec", "env", "-u", "+", "touch", PROOF, ";")),
    Attack("sed with a file of the name of an option", argv=("sed", f"1e {TOUCH}", "names.txt", "--", "--sandbox"), needs="sed"),
    Attack("strace into a command", argv=("strace", "-o", f"|{TOUCH}", "true"), needs="strace"),
    Attack("choom", argv=("choom", "-n", "0", "--", "touch", PROOF), needs="choom"),
    Attack("x86_64", argv=("x86_64", "touch", PROOF), needs="x86_64"),
    Attack("perl by a long name", argv=("perl5.36-x86_64-linux-gnu", "-e", f"open(F, '>{PROOF}')"), needs="perl5.36-x86_64-linux-gnu"),
    Attack("prove", argv=("prove", "-e", TOUCH, "names.txt"), needs="prove"),
    Attack("ssh-agent", argv=("ssh-agent", "touch", PROOF), needs="ssh-agent"),
    Attack("valgrind", argv=("valgrind", "touch", PROOF), needs="valgrind"),
    Attack("gcc by a wrapper", argv=("gcc", "-wrapper", f"sh,-c,{TOUCH}", "-x", "c", "-c", "names.txt"), needs="gcc"),
    Attack("node -e", argv=("node", "-e", f"require('fs').writeFileSync('{PROOF}', '')"), needs="node"),
    Attack("ruby -e", argv=("ruby", "-e", f"File.write('{PROOF}', '')"), needs="ruby"),
    Attack("lua -e", argv=("lua", "-e", f"io.open('{PROOF}', 'w')"), needs="lua"),
]  # fmt: skip


@pytest.fixture
def place(world: Any) -> Any:
    """Lay out what an agent could have written, or a clone brought along."""
    root: Path = world.root
    (root / "names.txt").write_text(f"{PROOF}\n")
    (root / "made.py").write_text(MADE)
    (root / "Makefile").write_text(f"all:\n\t{TOUCH}\n")
    (root / "bin").mkdir()
    for name in ("git", "git-x"):
        (root / "bin" / name).write_text(f"#!/bin/sh\n{TOUCH}\n")
        (root / "bin" / name).chmod(0o755)
    shutil.copy(shutil.which("touch") or "", root / "harmless")
    (root / "linked").symlink_to(shutil.which("touch") or "")
    subprocess.run(["git", "init", "-q"], cwd=root, check=False, capture_output=True)
    world.begin()
    return world


def unguarded(root: Path, attack: Attack) -> None:
    """Run it as a tool does that hands lines to a shell, and argv to the system."""
    argv = list(attack.argv) or ["bash", "-c", attack.line]
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.run(argv, cwd=root, env=environment(), timeout=20, check=False, **quiet)


def has(program: str) -> bool:
    return not program or os.path.exists(program) or shutil.which(program) is not None


@pytest.mark.parametrize("attack", [*LINES, *WRAPPED], ids=lambda attack: attack.name)
async def test_attack_by_a_command(place: Any, attack: Attack) -> None:
    # An operator who allows all but one program. Whatever could hide that one is asked for, and nobody says yes here.
    told = await (place.exec(*attack.argv) if attack.argv else place.shell(attack.line))
    assert told.startswith("refused"), told
    assert place.escapes() == []
    # The control. Where the program is not on this machine the refusal above is all that can be seen.
    if has(attack.needs):
        unguarded(place.root, attack)
        assert place.escapes() == [f"workspace/{PROOF}"], "the attack works without the guard"


# A program that is named by its own path is meant by a rule that names it so.
BROAD = [each for each in WRAPPED if not each.argv[0].endswith("/touch") and not each.argv[0].startswith("./")]


@pytest.mark.parametrize("attack", BROAD, ids=lambda attack: attack.name)
def test_attack_by_a_broad_allow(attack: Attack) -> None:
    """A rule that allows a program with anything behind it was not written for what that program can run."""
    policy = Policy.default().layer("operator").allow_exec(f"{attack.argv[0]} *").allow_exec(attack.argv[0])
    # The control: read as a rule for texts, it allows all of it.
    assert policy.explain(Act.exec, shlex.join(attack.argv)).effect is Effect.allow
    assert not may_run(policy, attack.argv)


@pytest.mark.parametrize(
    "attack",
    ["git statusx", "git status; id", "git status && id", "git status | id", "git status\nid", "git status $(id)", "git status `id`",
     "git status <(id)", "git status & id", "git status > ../out", 'git status "$(id)"', "git status || id", "git status\r\nid"],
)  # fmt: skip
async def test_attack_on_an_allowed_prefix(place: Any, attack: str) -> None:
    place.context.policy = Policy.default().layer("operator").allow_exec("git status").allow_exec("git status *")
    told = await place.shell(attack)
    assert told.startswith("refused")
    # The control: what compares the beginning of the text allows every one of them.
    assert attack.startswith("git status")


FSMONITOR = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = " + TOUCH + "; false\n"


@pytest.mark.parametrize("attack", [".git/config", "./.git//config", "sub/../.git/config", "linked-git/config"])
@pytest.mark.parametrize("way", ["write_file", "edit_file", "patch_file", "shell"])
async def test_attack_by_a_configuration_of_git(place: Any, attack: str, way: str) -> None:
    # Files may be written and `git status` may be run. Both together must not run what nobody allowed.
    (place.root / "linked-git").symlink_to(".git")
    (place.root / "config.txt").write_text(FSMONITOR)
    policy = Policy.default().layer("operator").allow_write("*").allow_exec("git").allow_exec("git status")
    place.context.policy = policy.allow_exec("cat").allow_exec("cat *")
    told = await _into(place, attack, way)
    assert told.startswith("refused") and "belongs to git" in told
    await place.exec("git", "status")
    assert place.escapes() == []
    # The control: once it stands there, the allowed command runs it.
    (place.root / ".git" / "config").write_text(FSMONITOR)
    await place.exec("git", "status")
    assert place.escapes() == [f"workspace/{PROOF}"]


async def _into(place: Any, path: str, way: str) -> str:
    if way == "shell":
        return str(await place.shell(f"cat config.txt > '{path}'"))
    if way == "edit_file":
        return str(await place.call(EditFile(), {"path": path, "search": "[core]", "replace": FSMONITOR}))
    if way == "patch_file":
        patch = "@@\n-[core]\n" + "".join(f"+{line}\n" for line in FSMONITOR.splitlines())
        return str(await place.call(PatchFile(), {"path": path, "patch": patch}))
    return str(await place.call(WriteFile(), {"path": path, "content": FSMONITOR}))


VARIABLES = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL", "GIT_EXTERNAL_DIFF", "PAGER", "EDITOR", "OPENAI_API_KEY", "SSH_AUTH_SOCK", "AWS_PROFILE", "HTTP_PROXY",
    "PROMPT_COMMAND", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "KUBECONFIG",
]  # fmt: skip


@pytest.mark.parametrize("attack", VARIABLES)
@pytest.mark.parametrize("way", ["exec", "shell"])
async def test_attack_by_a_variable_of_ours(world: Any, monkeypatch: pytest.MonkeyPatch, attack: str, way: str) -> None:
    monkeypatch.setenv(attack, "/nowhere/canary-of-a-variable")
    world.context.policy = Policy.permissive()
    told = await (world.exec("env") if way == "exec" else world.shell("env"))
    assert "PATH=" in told and "canary-of-a-variable" not in told
    verdict = await world.judged(_gate(("sh", "-c", f'test -z "${attack}"')))
    assert verdict.startswith("passed"), verdict
    # The control.
    done = await trio.run_process(["/usr/bin/env"], capture_stdout=True, capture_stderr=True)
    assert b"canary-of-a-variable" in done.stdout


def _gate(argv: Sequence[str]) -> Any:
    return Verification.command(list(argv))


def test_a_command_is_judged_alike_by_exec_and_by_a_gate() -> None:
    policy = Policy.permissive().layer("operator").deny_exec("touch").deny_exec("touch *")
    for attack in WRAPPED:
        allowed = all(each.decision.effect is Effect.allow for each in judge_command(policy, attack.argv))
        assert may_run(policy, attack.argv) is allowed is False, attack.name
