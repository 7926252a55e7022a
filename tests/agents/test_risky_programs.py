"""What runs other programs is looked into: an inner deny wins, a broad allow asks, and nothing is asked for nothing.

The corpus of attacks carries a control: the matcher by string prefix that others
use lets each of them through.
"""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents import exec_judging
from actors.agents.exec_judging import MOST_INNER, MOST_NESTED, effect_of, judge_command, may_run
from actors.agents.policy import RISKY_LAYER, Defaults, Effect, Policy
from actors.agents.risky_names import RUNNERS
from actors.agents.risky_programs import RISKY_NAMES, program_name, wrapping_of
from actors.agents.shell_line import LineRefused, read_line
from actors.testing.effort import does_not_run_away

ALLOW, ASK, DENY = Effect.allow, Effect.ask, Effect.deny


def effect(policy: Policy, argv: list[str] | str) -> Effect:
    return effect_of(judge_command(policy, shlex.split(argv) if isinstance(argv, str) else argv))


def operator(*rules: str) -> Policy:
    """Allow what is given; all else asks."""
    policy = Policy.default().layer("operator")
    for rule in rules:
        policy = policy.allow_exec(rule)
    return policy


# ── AB-133, 134, 137: what follows an allowed beginning ─────────────────────

GIT_STATUS = operator("git", "git status", "git status *")
BEHIND_A_PREFIX = [
    "git status; id",
    "git status;id",
    "git status && id",
    "git status || id",
    "git status | id",
    "git status |id",
    "git status & id",
    "git status\nid",
    "git status\r\nid",
    "git status $(id)",
    "git status `id`",
    'git status "$(id)"',
    'git status "`id`"',
    "git status ${x:=$(id)}",
    "git status <(id)",
    "git status >(id)",
    "git status > $(id)",
    "git status --porcelain=$(id)",
    "git status ; env id",
    "git status | xargs id",
    "git status | sh",
    "git status && sh -c id",
    "git status; X=1 id",
    "git status; . ./x",
    "git status; eval id",
    "git status |& id",
    "git status <<< x; id",
    "git statusx",
    "git status-x",
    "git status2",
]


def naive_prefix_matcher(line: str) -> bool:
    """Allow what begins like an allowed command: the matcher that AB-133 is about."""
    return line.startswith("git status")


def runs_unasked(policy: Policy, line: str) -> bool:
    """Tell whether the tool `shell` would run a line without asking anybody."""
    try:
        read = read_line(line)
    except LineRefused:
        return False
    return all(may_run(policy, command.argv) for command in read.commands)


@pytest.mark.parametrize("line", BEHIND_A_PREFIX)
def test_nothing_rides_behind_an_allowed_beginning(line):
    assert naive_prefix_matcher(line), "the control: a prefix matcher lets it through"
    assert not runs_unasked(GIT_STATUS, line)


def test_the_allowed_command_itself_runs_and_its_parts_are_judged_one_by_one():
    assert runs_unasked(GIT_STATUS, "git status")
    assert runs_unasked(GIT_STATUS, "git status --short && git status")
    assert not runs_unasked(GIT_STATUS, "git status && git push")


@pytest.mark.parametrize("line", [*(line for line in BEHIND_A_PREFIX if line[10] not in "x-2"), 'git log "$(id)"', "git log --format='%H' `id`"])
def test_a_broad_allow_of_git_is_no_allow_of_what_is_substituted_or_joined(line):
    policy = operator("git", "git *")
    assert line.startswith("git "), "the control: it fits the glob as a text"
    assert not runs_unasked(policy, line)


@pytest.mark.parametrize("shell", ["bash -lc", "sh -c", "/bin/sh -c", "bash -ec", "zsh -c", "dash -xc", "env sh -c", "busybox sh -c"])
@pytest.mark.parametrize("inner", ["rm x", "git status; rm x", "git status && rm x", "true | rm x", "env rm x", "sh -c 'rm x'"])
def test_the_prefix_of_a_shell_wrapper_hides_nothing(shell, inner):
    argv = [*shlex.split(shell), inner]
    denies = Policy.permissive().layer("operator").deny_exec("rm*")
    assert denies.explain("exec", argv[0]).effect is ALLOW, "the control: neither the program"
    assert denies.explain("exec", shlex.join(argv)).effect is ALLOW, "nor the line is denied by itself"
    assert effect(denies, argv) is DENY
    # Where nothing is denied, a broad allow of the shell asks.
    assert effect(operator("*"), argv) is ASK


# ── AB-136: wrappers and interpreters ───────────────────────────────────────

# Each runs `rm x`, and it can be seen.
SEEN = [
    "env rm x", "env -i rm x", "env -u A rm x", "env --unset=A rm x", "env - rm x", "env A=b rm x", "env -- rm x",
    "nice rm x", "nice -n 5 rm x", "nice --adjustment=5 rm x", "nohup rm x", "timeout 5 rm x", "timeout -k 1 5 rm x",
    "timeout -s9 5 rm x", "timeout --signal=KILL 5 rm x", "setsid rm x", "setsid -fw rm x", "stdbuf -oL rm x",
    "stdbuf -o L rm x", "ionice -c 3 rm x", "sudo rm x", "sudo -n -u root rm x", "sudo A=b rm x", "doas rm x",
    "xargs rm x", "xargs -0 rm x", "xargs -n 1 rm x", "xargs -I{} rm x", "xargs -n1 -P4 rm x", "time -p rm x",
    "find . -exec rm x ;", "find . -exec rm x {} +", "find . -name a -execdir rm x ;", "find . -ok rm x ;",
    "find . -exec true ; -exec rm x ;", "fd -x rm x", "fd a --exec rm x", "busybox rm x", "strace -f rm x",
    "env nice timeout 5 rm x", "sh -c 'rm x'", "bash -lc 'rm x'", "bash --norc -c 'rm x'", "sh -e -c 'rm x'",
    "bash -o pipefail -c 'rm x'", "sh -c 'true; rm x'", "sh -c 'rm x' a b", "/bin/rm x", "/usr/bin/env /bin/rm x",
    "SH -c 'rm x'", "./bin/rm x", "chroot / rm x", "taskset 1 rm x", "command rm x", "unbuffer rm x",
    "x86_64 rm x", "i386 rm x", "linux64 rm x", "choom -n 0 -- rm x", "uclampset -m 0 rm x", "runcon x rm x", "chronic rm x",
    "bash-static -c 'rm x'", "fakeroot-sysv rm x", "xargs --replace rm x", "xargs --replace={} rm x", "xargs --max-lines rm x",
    "find . -exec env -u + rm x ;", "find . -exec true {} + -exec rm x ;",
    # A command in one text, as far as our language reads it.
    "env -S 'rm x'", "env --split-string='rm x'", "env -vS 'rm x'", "env --spl 'rm x'", "env -i -S 'A=b rm' x", "env -S '-u A rm x'",
    "env -S '-S \"rm x\"'", "env -C . rm x", "env -S 'nice -n 5 rm' x", "su -c 'rm x'", "su root -c 'true; rm x'", "su --command=rm root",
    "runuser -u nobody -- rm x", "script -qc 'rm x' f", "script --command 'rm x' f", "flock f rm x", "flock -n f -c 'rm x'", "watch rm x",
    "watch -n 1 'ls; rm x'", "watch -x rm x", "parallel rm ::: a", "parallel 'rm {}' ::: x", "sg g -c 'rm x'", "setpriv --reuid 1 rm x",
    "unshare -r rm x", "tini -- rm x", "xvfb-run -a rm x", "systemd-run --user rm x", "tmux new 'rm x'", "screen -dm rm x", "perf stat rm x",
    "tar --to-command='rm x' -xf x", "tar -cf a --checkpoint-action=exec='rm x' b", "tar cIf 'rm x' a", "split --filter='rm x' a",
    "rsync -e 'rm x' a b", "rg --pre rm x", "sort --compress-program=rm x", "git -c alias.x='!rm x' x", "git -c core.pager='rm x' log",
    "git -c a.b=c -c core.sshCommand='rm x' fetch", "git rebase -x 'rm x'", "git rebase --exec='rm x' b", "git bisect run rm x",
    "git submodule foreach 'rm x'", "coreutils --coreutils-prog=rm x", "coreutils --coreutils-prog-shebang=rm s x", "coreutils --coreutils-prog-shebang=env s rm x", "coreutils rm x",
    "coreutils env rm x", "/usr/bin/coreutils --coreutils-prog=env rm x", "busybox.static rm x", "ld-linux.so.2 --library-path q /bin/rm x",
    "ld-linux-aarch64.so.1 /bin/rm x", "ld-musl-x86_64.so.1 /bin/rm x", "ld64.so.2 rm x", "/lib64/ld-linux-x86-64.so.2 --argv0 a /bin/rm x",
    "go test -exec 'rm x'", "go vet -vettool=rm", "go run -exec rm .", "npm exec -- rm x", "npm exec -c 'rm x'", "npm exec --call='rm x'",
    "npm x rm y", "pnpm dlx rm x", "pnpm -r exec rm x", "yarn exec -- rm x", "sed -ne '1e rm x' f", "sed -ne1'e rm x'", "sed --expression='1e rm x'",
    "sed --exp '1e rm x'", "sed -i.bak '1e rm x' f", "sed '1erm x'", "sed '/a/I e rm x'", "sed 's/a/rm x/e'", "sed -f q -e '1e rm x'",
    "sed f -- '1e rm x' -e '1e rm x'", "man -P 'rm x' ls", "man -P'rm x' ls", "man --pager='rm x' ls", "vim -c ':!rm x'", "vim +':!rm x'",
    "vim -c 'silent !rm x'", "vim --cmd ':!rm x'", "less '+!rm x' f", "lftp -c '!rm x'", "socat - 'EXEC:rm x'", "socat - 'EXEC:\"rm x\",pty'",
    "socat - 'SYSTEM:true; rm x'", "socat -u 'EXEC:ls!!EXEC:rm x' -", "just --command rm x", "cargo watch -s 'rm x'", "cmake -E env rm x",
    "opam exec -- rm x", "rustup run stable rm x", "make SHELL=rm", "make CC='rm x' y", "xcrun rm x", "rsync -aerm a b", "rsync -ae 'rm x' a b",
    "zip a b -T -TT 'rm x'", "git rebase -ixrm", "git rebase -ix 'rm x'", "git fetch 'ext::rm% x'", "git clone 'ext::rm x' q", "fish -C 'rm x'",
    "gdb -ex '!rm x'", "gdb -ex 'shell rm x'", "sqlite3 q '.system rm x'", "psql -c '\\! rm x'", "gcc -wrapper rm,x y.c",
    "ssh -oProxyCommand='rm x' h", "ssh -o 'ProxyCommand rm x' h", "scp -S rm a h:b",
    "sh -c 'exec -a q rm $A'", "sh -c 'exec -cl rm $A'", "sh -c 'time -p rm $A'", "sh -c 'command -p rm $A'", "sh -c 'A=\"b c\" rm $A'",
    "sh -c '>\"a b\" rm *'", "sh -c 'coproc rm *'", "sh -c 'a[1]=2 A+=2 rm *'", "sh -c 'trap \"rm x\" EXIT'", "sh -c 'eval \"rm x\"; cd $A'",
    "git difftool -x 'rm x'", "sed '1e rm x' a", "sed -n '/a/e rm x' b", "vim -c '!rm x'", "fd --exec-batch=rm",
    "fd -Hx rm x", "npx rm x", "uv run rm x", "hyperfine 'rm x'", "entr rm x",
    # An option that is not known, and what may stand behind it.
    "env --foo rm x", "nice -5 rm x", "timeout --foo 5 rm x", "sudo -i rm x", "prlimit --nofile=1 rm x", "bash --rcfile q -c 'rm x'",
    # A text that is not read whole.
    "sh -c 'rm x &'", "sh -c 'cd a && rm x'", "sh -c 'if true; then rm x; fi'", "sh -c 'A=1 rm x > $B'", "sh -c '(rm x)'", "sh -c 'echo $(rm x)'",
    "bash -c 'ls\nrm x'", "sh -c '! exec rm x; :'", "flock f sh -c 'cd a; rm x'", "sh -c 'rm $A'", "sh -c 'cd a && rm -rf \"$B\"/x'",
]  # fmt: skip
# Looks like it, and is another program, or none: asked about, as before.
ELSEWHERE = [
    "ssh h rm x", "docker run x rm y", "git -c a.b=c rm x", "git -c alias.x=rm x", "sh -c 'echo \"a; rm b\" $x'",
    "sh -c 'cd rm'", "tar -I gzip -cf rm.tar a", "make rm", "env --foo -rm",
]  # fmt: skip
# Each may run anything, and what cannot be seen.
OPAQUE = [
    "python -c 'print()'", "python3.12 -c 'x'", "python -m http.server", "python x.py", "python", "python -", "python -v",
    "python -Ic x", "perl -e x", "perl -ne x", "ruby -e x", "node -e x", "node x.js", "php -r x", "lua -e x", "deno run x",
    "awk 'BEGIN{system(\"id\")}'", "gawk x", "sh", "sh x.sh", "sh -s", "bash", "bash -i", "bash --rcfile x", "sh -c",
    "sh -c '$(id)'", "bash -c 'cd x'", "fish -c 'id'", "zsh -c '=rm x'",
    "env A=b", "env --foo ls x", "nice -5 ls x", "xargs", "env -S 'rm\\_x'", "env -S '${A} x'", "env -S", "xargs -0",
    # What is run can be seen, and what it is given cannot.
    "xargs ls", "xargs -n 1 ls -l", "find . -exec ls {} +", "fd -x ls", "env A=b ls", "git -c core.pager=id log", "git -c alias.x=!id x",
    "git --config-env=core.pager=X log", "git -C x status", "git --git-dir=x status", "git --exec-path=. status",
    "git x", "git bisect run id", "git submodule foreach id", "git config core.pager id", "git difftool -x id",
    "git filter-branch", "git rebase -x id", "git rebase --exec id", "git rebase --exe=id", "git grep -O id", "git fetch --upload-pack=id x",
    "git clone ext::id x", "git clone -u id x", "git clone -c core.fsmonitor=id x", "git push --receive-pack=id", "git archive --exec=id",
    "git diff --ext-diff", "git log --textconv", "git init --template=x", "make", "make test", "gmake", "npm run x", "npm test", "npx x",
    "yarn x", "pnpm x", "cargo run", "go run .", "pip install x", "uv run x", "ssh h id", "scp a b", "rsync -e id a b",
    "rsync --rsh=id a b", "rsync -ae id a b", "docker run x", "kubectl exec x", "su -c id", "systemd-run id", "crontab x", "at now",
    "tmux new id", "script -c id", "watch id", "parallel id", "flock f id", "nsenter id", "unshare id", "vi x", "vim -c x",
    "ed x", "less x", "man x", "gdb x", "tar --to-command=id -xf x", "tar --checkpoint-action=exec=id", "tar -I id -xf x", "tar cIf id x",
    "tar --use-comp=id -xf x", "sort --compress-program=id x", "zip -TT id x", "split --filter=id x", "wget --use-askpass=id x",
    "rg --pre id x", "sed '1e id' x", "sed 's/a/b/e' x", "sed -f x", "sed 'w f' x", "sed -n '1p;e id'", "sed 's/a/b/' x --expression='1e id'",
    "./x", "bin/x", "/tmp/x", "/srv/task/x", "/usr/bin/../../tmp/x", "/tmp/git status", "/tmp/ls", "SH -c '$x'", "Python -c x",
    # An editor is opened, which is whatever the settings say.
    "git notes edit", "git notes add", "git notes append x", "git commit", "git commit -a", "git commit -c HEAD", "git commit -em x", "git commit -v -- -m",
    "git commit --amend", "git tag -a v1", "git tag -s v1", "git tag -em x v1", "git rebase -i", "git rebase --edit-todo", "git branch --edit-description",
    "git merge --edit x", "git revert -e x", "git cherry-pick -e x", "git add -e", "git add --interactive", "git pull -e",
    "find . -exec {} ;", "find . -exec", "sqlite3 x", "dc x", "m4 x", "open x", "xdg-open x",
    # A shell where no program is named.
    "linux64", "linux32", "i386", "x86_64", "setarch x86_64", "fakeroot", "fakeroot-tcp",
    # Options shortened to one letter, standing together, or standing where they are none.
    "git ls-remote --u=id x", "git clone --u=id x y", "git archive --e=id x", "fd -Hx ls", "fd --exec-batch=ls",
    "sed '1e id' x -- --sandbox", "sed -e --sandbox -e '1e id' x", "strace -o '|id' ls", "strace -fo '|id' ls", "strace -o!id ls",
    "wget -e use_askpass=./x y", "wget -qe use_askpass=./x y", "tar -cT x", "tar --files-from=x -c", "install -s --strip-program=./x a b",
    "patch -e x y", "diff3 --diff-program=./x a b c", "gcc -wrapper ./x y.c", "gcc @x", "gcc -B. y.c", "clang-14 -fplugin=./x.so y.c",
    "x86_64-linux-gnu-gcc-12 -specs=x y.c", "ld -plugin ./x.so y.o", "c++ -Wl,-plugin,./x.so y.cc", "fzf --preview id",
    # Names as systems and makers spell them.
    "perl5.36-x86_64-linux-gnu -e x", "python3.12-dbg -c x", "python3.13t -c x", "vim.basic x", "bash-static x", "cpan5.36-x86_64-linux-gnu x",
    "pydoc3.11 x", "pdb3 x", "ssh-agent id", "perf stat id", "valgrind id", "hyperfine id", "systemd-inhibit id", "sg x -c id",
    "newgrp x", "prove x", "cpan x", "ldd ./x", "pytest", "pytest -q", "terraform apply", "openssl x", "msgexec id", "gh x", "hg x",
]  # fmt: skip


@pytest.mark.parametrize("program", ["1" * 500_000 + "x", "a" + "1." * 250_000 + "x", "-" * 500_000, "x-linux-" * 60_000, "a_" * 250_000])
@pytest.mark.parametrize("way", ["{}", "env {}", "sh -c '{}'", "sed -n {}", "git {}", "find . -exec {} ;"])
def test_a_command_made_to_hurt_is_judged_in_no_time(program, way):
    argv = [word.replace("{}", program) for word in shlex.split(way)]
    denies = Policy.permissive().layer("operator").deny_exec("rm*")
    with does_not_run_away():
        seen = judge_command(denies, argv)
    assert seen[0].target == argv[0]


@pytest.mark.parametrize("begin", ["env", "xargs", "find", "git log", "tar", "sed", "fd -x", "sudo", "find . -exec find"])
@pytest.mark.parametrize("part", ["a=b", "-i", "-exec a ;", "-exec find ;", "--x", "-e s/a/b/", "-x", "-n 1"])
def test_arguments_without_end_are_judged_in_no_time(begin, part):
    argv = [*begin.split(), *part.split() * (100_000 // len(part.split())), "ls"]
    denies = Policy.permissive().layer("operator").deny_exec("rm*")
    # A tenth of a second in truth; what looks at all that follows for each one takes twenty seconds.
    with does_not_run_away(5.0):
        seen = judge_command(denies, argv)
    assert seen[0].target == argv[0]


@pytest.mark.parametrize("line", SEEN)
def test_a_denied_program_is_denied_inside_of_another(line):
    denies = Policy.permissive().layer("operator").deny_exec("rm*")
    argv = shlex.split(line)
    assert denies.explain("exec", argv[0]).effect is denies.explain("exec", shlex.join(argv)).effect is ALLOW, "control"
    judged = judge_command(denies, argv)
    assert effect_of(judged) is DENY
    # And it is said which rule: the operator finds it in the record.
    assert any(each.decision.rule == "rm*" and each.decision.layer == "operator" for each in judged)
    # An ask inside asks.
    assert effect(Policy.permissive().layer("operator").ask_exec("rm"), argv) is ASK


@pytest.mark.parametrize("line", ELSEWHERE)
def test_what_only_looks_like_a_denied_program_is_asked_about(line):
    assert effect(Policy.permissive().layer("operator").deny_exec("rm").deny_exec("rm *"), line) is ASK


def test_a_text_that_is_split_is_no_line_of_a_shell():
    denies = Policy.permissive().layer("operator").deny_exec("ls")
    assert effect(denies, ["env", "-S", "echo rm; ls"]) is ALLOW, "one program, with three arguments"
    assert effect(denies, ["sh", "-c", "echo rm; ls"]) is DENY


@pytest.mark.parametrize("word", ["flock", "watch", "parallel", "env --foo", "git x", "sh -c 'flock a b c d'", "env -S 'flock a'"])
def test_guesses_in_guesses_end(word, monkeypatch):
    looks, judge = 0, exec_judging._judge

    def counted(*arguments):
        nonlocal looks
        looks += 1
        return judge(*arguments)

    monkeypatch.setattr(exec_judging, "_judge", counted)
    denies = Policy.permissive().layer("operator").deny_exec("rm")
    assert effect(denies, f"{word} " * 60) is ASK
    assert looks <= MOST_INNER + 1


@pytest.mark.parametrize("line", OPAQUE)
def test_what_cannot_be_seen_asks_where_a_rule_could_be_passed_by(line):
    argv = shlex.split(line)
    denies = Policy.permissive().layer("operator").deny_exec("rm*")
    assert denies.explain("exec", shlex.join(argv)).effect is ALLOW, "control"
    judged = judge_command(denies, argv)
    assert effect_of(judged) is ASK
    assert judged[-1].decision.layer == RISKY_LAYER and argv[0] in str(judged[-1].decision.rule)


@pytest.mark.parametrize("line", [*SEEN, *OPAQUE])
def test_a_broad_allow_asks_for_what_runs_others_and_denies_stay(line):
    argv = shlex.split(line)
    program = argv[0]
    for policy in (operator("*"), operator(program, f"{program} *", "rm", "rm *"), operator("?*")):
        if policy.explain("exec", shlex.join(argv)).effect is not ALLOW:
            continue
        if line == "/bin/rm x":
            # A program of the system by its path is itself, and nothing that runs others.
            assert effect(policy, argv) is ALLOW
            continue
        wrapping = wrapping_of(argv)
        assert wrapping is not None
        if policy.explain("exec", program).rule == program and wrapping.named == 1:
            # The rule spells all of it out that is dangerous: `make` allows `make`, and `./x` allows `./x`.
            # So does `pytest *`: what it loads is known to whoever writes the rule.
            assert "/" in program or program == line or program in RUNNERS
            continue
        assert effect(policy, argv) is ASK, policy


@pytest.mark.parametrize("line", [*SEEN, *OPAQUE])
def test_a_policy_without_rules_stays_permissive_and_the_default_asks_as_before(line):
    argv = shlex.split(line)
    assert may_run(Policy.permissive(), argv)
    # Rules for other acts hold nothing of exec back.
    assert may_run(Policy.permissive().layer("operator").deny_write("*.lock").allow_read("*"), argv)
    judged = judge_command(Policy.default(), argv)
    assert effect_of(judged) is ASK
    assert {each.decision.layer for each in judged} == {None}
    assert effect(Policy(defaults=Defaults(exec="deny")), argv) is DENY


@pytest.mark.parametrize(
    ("rules", "line", "wanted"),
    [
        (("timeout", "timeout 60 pytest*"), "timeout 60 pytest -q", ALLOW),
        (("timeout", "timeout 60 pytest*"), "timeout 60 rm x", ASK),
        (("timeout", "timeout *"), "timeout 60 pytest", ASK),
        (("env", "env ls*"), "env ls -l", ALLOW),
        (("env", "env ls*"), "env lsof", ASK),
        (("env", "env ls*"), ["env", "ls -l; id"], ASK),
        (("env", "env *"), "env ls", ASK),
        (("python", "python -m pytest*"), "python -m pytest -q", ALLOW),
        (("python", "python -m pytest*"), "python -m pip", ASK),
        (("python", "python -m *"), "python -m pytest", ASK),
        (("python", "python -c *"), "python -c 'print(1)'", ALLOW),
        (("python", "python *"), "python -c 'print(1)'", ASK),
        (("python", "python check.py*"), "python check.py -v", ALLOW),
        (("sh", "sh -c *"), "sh -c 'ls; pwd'", ALLOW),
        (("sh", "sh -c 'ls'"), ["sh", "-c", "ls"], ASK),
        (("sh", "sh -c ls"), ["sh", "-c", "ls"], ALLOW),
        (("sh", "sh *"), "sh -c ls", ASK),
        (("git", "git *"), "git status", ALLOW),
        (("git", "git *"), "git log --oneline -3", ALLOW),
        (("git", "git *"), "git commit -m 'a message; $(x)'", ALLOW),
        (("git", "git *"), "git push -u origin main", ALLOW),
        (("git", "git *"), "git -c user.name=x commit", ASK),
        (("git", "git -c user.name=x *"), "git -c user.name=x commit", ALLOW),
        (("make", "make test"), "make test", ALLOW),
        (("make", "make *"), "make test", ASK),
        (("make",), "make", ALLOW),
        (("npm", "npm run build*"), "npm run build", ALLOW),
        (("npm", "npm run *"), "npm run build", ASK),
        (("find", "find *"), "find . -name '*.py'", ALLOW),
        (("find", "find *"), "find . -exec cat {} ;", ASK),
        (("find", "find . -exec cat*"), "find . -exec cat {} ;", ALLOW),
        (("./run.sh", "./run.sh *"), "./run.sh -x", ALLOW),
        (("*",), "./run.sh -x", ASK),
        (("*",), "ls -l", ALLOW),
        (("*",), "/bin/ls -l", ALLOW),
        (("*",), "sed -n 1,5p x", ALLOW),
        (("*",), "sed -i s/a/b/g x", ALLOW),
        (("*",), "tar -xzf x.tgz", ALLOW),
        (("*",), "sort -u x", ALLOW),
        (("*",), "python --version", ALLOW),
        (("*",), "env", ALLOW),
        (("*",), "git --no-pager diff", ALLOW),
        (("*",), "git branch --contains x", ALLOW),
        (("*",), "git commit -am x", ALLOW),
        (("*",), "git commit -qam x", ALLOW),
        (("*",), "git commit -mce", ALLOW),
        (("*",), "git commit --message=x", ALLOW),
        (("*",), "git commit -F - -s", ALLOW),
        (("*",), "git commit --amend --no-edit", ALLOW),
        (("*",), "git commit --fixup HEAD", ALLOW),
        (("*",), "git notes add -m x", ALLOW),
        (("*",), "git notes show", ALLOW),
        (("*",), "git notes", ALLOW),
        (("*",), "git tag v1", ALLOW),
        (("*",), "git tag -am x v1", ALLOW),
        (("*",), "git rebase -Xtheirs main", ALLOW),
        (("git", "git commit*"), "git commit", ALLOW),
        (("*",), "sed -ne 1p x", ALLOW),
        (("*",), "sed --expression=s/a/b/ x", ALLOW),
        (("coreutils", "coreutils rm*"), "coreutils rm x", ALLOW),
    ],
)  # fmt: skip
def test_a_rule_that_spells_the_wrapped_command_out_is_meant(rules, line, wanted):
    assert effect(operator(*rules), line) is wanted


def test_a_rule_that_is_meant_beats_no_rule_against_what_runs_inside():
    policy = operator("env", "env *", "env rm*", "sh", "sh -c *")
    assert effect(policy, "env rm x") is ALLOW
    assert effect(policy.deny_exec("rm"), "env rm x") is DENY
    assert effect(policy.ask_exec("rm x"), "env rm x") is ASK
    assert effect(policy.deny_exec("rm *"), "sh -c 'ls; rm x'") is DENY
    # A child cannot take it back, and can forbid it.
    contained = policy.contain(Policy.default().layer("child").allow_exec("python *"))
    assert effect(contained, "python -c x") is ASK
    assert effect(policy.contain(Policy().layer("child").deny_exec("env*")), "env rm x") is DENY


def test_rules_match_the_arguments_and_no_text_that_looks_like_them():
    policy = operator("git", "git status", "git log *")
    assert effect(policy, ["git", "status"]) is ALLOW
    assert effect(policy, ["git", "log", "a; id"]) is ALLOW, "one argument, and no shell"
    assert effect(policy, ["git status"]) is ASK, "a program with a blank in its name"
    assert effect(policy, ["git", "status;", "id"]) is ASK
    assert effect(policy, ["git", "statusx"]) is ASK
    assert effect(policy, ["git", "status", ""]) is ASK
    assert effect(policy, ["git", "log"]) is ASK


def test_a_deny_of_a_program_is_a_deny_of_it_by_its_path():
    denies = Policy.permissive().layer("operator").deny_exec("rm").deny_exec("curl *evil*")
    assert denies.explain("exec", "/bin/rm").effect is ALLOW, "control"
    assert effect(denies, "/bin/rm x") is effect(denies, "/usr/bin/curl http://evil") is DENY
    assert effect(denies, "/bin/ls rm") is ALLOW
    # By its last part a command never gets more.
    assert effect(operator("ls", "ls *"), "/tmp/ls x") is ASK


def test_too_deep_in_each_other_is_not_looked_into_and_asks():
    denies = Policy.permissive().layer("operator").deny_exec("rm")
    assert effect(denies, "nice " * MOST_NESTED + "rm x") is DENY
    assert effect(denies, "nice " * (MOST_NESTED + 1) + "rm x") is ASK


def test_every_name_of_the_class_is_the_one_that_is_looked_up():
    assert sorted(name for name in RISKY_NAMES if program_name(name) != name) == []
    known = {"/usr/bin/env": "env", "python3.12": "python", "Bash": "bash", "bash-5.2": "bash", "C:\\x\\PWSH.EXE": "pwsh", "7": "7"}
    assert {program: program_name(program) for program in known} == known


WORDS = st.sampled_from(
    ["env", "sh", "-c", "rm", "x", "nice", "-n", "5", "git", "status", "-C", "find", "-exec", "{}", ";", "--", "-", "A=b", "xargs",
     "python", "-m", "timeout", "rm x", "sed", "-e", "tar", "", "make", "/bin/rm", "sudo", "-u", "./y"]
)  # fmt: skip


@given(st.lists(WORDS, min_size=1, max_size=8))
def test_looked_at_in_more_ways_a_command_never_gets_more(argv):
    if not argv[0]:
        argv = ["x", *argv]
    line = shlex.join(argv)
    for policy in (Policy.permissive(), operator("*"), operator("env*", "rm*"), operator("*").deny_exec("rm")):
        plain = max(
            (policy.explain("exec", argv[0]).effect, policy.explain("exec", line).effect), key=(ALLOW, ASK, DENY).index
        )
        got = effect(policy, argv)
        assert (ALLOW, ASK, DENY).index(got) >= (ALLOW, ASK, DENY).index(plain)
    wrapping = wrapping_of(argv)
    if wrapping is not None:
        assert 1 <= wrapping.named <= len(argv)
        assert all(wrapping.inner)
        assert wrapping.inner or wrapping.opaque


@pytest.mark.parametrize(("denied", "line"), [
    ("curl*", "apt-get install -y curl"), ("git*", "dnf install -y git"), ("git*", "cargo test -p git2"), ("rm*", "tox -e rm"),
    ("rm*", "go test -run rm ./rm"), ("rm*", "mvn -Dtest=rm test"), ("test*", "mvn -q test"), ("test*", "gradle -q test"),
    ("build*", "cmake --build build"), ("build*", "go build -o build ./..."), ("build*", "cargo build -p build"),
])  # fmt: skip
def test_a_target_or_a_package_behind_an_option_is_no_denied_program(denied, line):
    program = line.split()[0]
    policy = Policy.permissive().layer("operator").deny_exec(denied).allow_exec(f"{program} *").allow_exec(program)
    assert effect_of(judge_command(policy, shlex.split(line))) is Effect.ask
    exact = policy.layer("exact").allow_exec(line)
    assert effect_of(judge_command(exact, shlex.split(line))) is Effect.allow


@pytest.mark.parametrize("line", [
    "bash -c 'exec -- rm $x'", "bash -c 'command -- rm $x'", "bash -c 'time -p -- rm $x'", "bash -c '\\rm $x'",
    "git rebase -i --exec 'rm x'", "nodemon --exec 'rm x'", "cross-env A=1 rm x", "concurrently 'rm x'", "bear -- rm x",
    "pixi run rm x", "go test -exec rm ./...", "go build -toolexec rm", "npm exec -- rm x", "just --command rm x",
])  # fmt: skip
def test_a_denied_program_behind_one_that_is_allowed_by_its_head_is_denied(line):
    argv = shlex.split(line)
    policy = Policy.permissive().layer("operator").deny_exec("rm*").allow_exec(f"{shlex.join(argv[:2])}*").allow_exec(argv[0])
    assert effect_of(judge_command(policy, argv)) is Effect.deny
