"""Which backend holds a boundary, and what it is told: decided from facts alone."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Defaults, Effect, Layer, Policy, Rule
from actors.agents.ports import Act
from actors.tools.call_filter import LOCAL, MACHINES, OF_NAMESPACES, Machine, call_filter
from actors.tools.sandbox_grants import ASKED_BY_DEFAULT, FileRules, Grants, grants_of
from actors.tools.sandbox_plan import (
    IOCTL_DEV,
    KEYRINGS,
    MAKE_BLOCK,
    MAKE_CHAR,
    MEMORY,
    READ_DIR,
    READ_FILE,
    SHARED_MEMORY_BYTES,
    WRITE_FILE,
    Backend,
    Capabilities,
    Net,
    bubblewrap_options,
    handled,
    landlock_rules,
    limits_of,
    plan_sandbox,
)

ROOT, HOME = "/srv/task", "/home/me"
READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
ALL = Capabilities("/usr/bin/bwrap", 7, True, True, True)
LANDLOCK = attrs.evolve(ALL, bubblewrap=None)
BARE = Capabilities(landlock=7)
GRANTS = Grants((ROOT,), (f"{ROOT}/.env", f"{HOME}/.ssh"), (f"{ROOT}/tests",))


def grants(policy: Policy) -> Grants:
    return grants_of(policy, ROOT, HOME)


# ── which backend ───────────────────────────────────────────────────────────


def test_the_best_backend_that_works_is_chosen():
    for mode in (None, READ_ONLY, WRITE):
        assert plan_sandbox(mode, GRANTS, ALL).backend is Backend.bubblewrap
        assert plan_sandbox(mode, GRANTS, LANDLOCK).backend is Backend.landlock
    assert plan_sandbox(None, GRANTS, Capabilities()).backend is Backend.none


def test_what_cannot_keep_the_network_away_is_never_picked_where_it_must():
    bare = plan_sandbox(WRITE, GRANTS, BARE)
    assert (bare.backend, bare.net) == (Backend.none, Net.not_held)
    assert bare.problem is not None
    assert "landlock alone cannot" in bare.problem
    granted = plan_sandbox(WRITE, attrs.evolve(GRANTS, net=True), BARE)
    assert (granted.backend, granted.net, granted.problem) == (Backend.landlock, Net.open, None)
    for can in (attrs.evolve(BARE, seccomp=True), attrs.evolve(BARE, namespaces=True)):
        assert plan_sandbox(WRITE, GRANTS, can).net is Net.denied


def test_a_boundary_that_was_named_and_cannot_be_held_is_a_problem_with_a_remedy():
    for mode in (READ_ONLY, WRITE):
        plan = plan_sandbox(mode, GRANTS, Capabilities())
        assert plan.problem is not None
        assert plan.problem.startswith(f"{mode} cannot be held here")
        assert "install bubblewrap" in plan.problem
        assert 'exec_sandbox = "full_access"' in plan.problem


def test_where_our_own_python_may_not_be_run_the_remedy_is_about_that_and_not_about_bubblewrap():
    problem = plan_sandbox(WRITE, GRANTS, Capabilities(closed="/srv/python3")).problem
    assert problem is not None and "/srv/python3" in problem and "bubblewrap" not in problem
    assert "install Python where this user may run it" in problem


def test_a_boundary_that_nobody_named_is_held_as_far_as_can_be_and_says_how_far():
    plan = plan_sandbox(None, GRANTS, Capabilities())
    assert plan.problem is None
    assert (plan.mode, plan.backend, plan.net) == (WRITE, Backend.none, Net.not_held)
    assert plan.not_held == ("workspace_write: neither bubblewrap nor landlock works",)


def test_an_old_landlock_that_lets_files_be_emptied_does_not_count():
    plan = plan_sandbox(WRITE, attrs.evolve(GRANTS, net=True), Capabilities(landlock=2, seccomp=True))
    assert plan.problem is not None
    assert "version 2" in plan.problem


def test_full_access_is_no_boundary_whatever_there_is():
    plan = plan_sandbox(FULL, GRANTS, ALL)
    assert (plan.backend, plan.net, plan.problem, plan.not_held) == (Backend.none, Net.not_held, None, ())
    assert plan_sandbox(FULL, attrs.evolve(GRANTS, net=True), ALL).net is Net.open


def test_rules_alone_say_what_they_do_not_hold():
    plan = plan_sandbox(WRITE, GRANTS, attrs.evolve(BARE, seccomp=True))
    assert f"read of {ROOT}/.env" in plan.not_held
    assert f"write of {ROOT}/tests" in plan.not_held
    # Neighbours can be granted in its place, so this one is held.
    assert f"read of {HOME}/.ssh" not in plan.not_held
    assert plan_sandbox(WRITE, GRANTS, LANDLOCK).not_held == ()


@given(
    st.sampled_from([None, READ_ONLY, WRITE]),
    st.booleans(),
    st.sampled_from([None, "/usr/bin/bwrap"]),
    st.integers(0, 8),
    st.booleans(),
    st.booleans(),
)
def test_no_plan_promises_what_its_machine_cannot_do(mode, net, bubblewrap, landlock, namespaces, seccomp):
    can = Capabilities(bubblewrap, landlock, namespaces, seccomp)
    plan = plan_sandbox(mode, attrs.evolve(GRANTS, net=net), can)
    if plan.backend is Backend.bubblewrap:
        assert bubblewrap
    if plan.backend is Backend.landlock:
        assert landlock >= 3
    if plan.net is Net.denied:
        assert plan.backend is Backend.bubblewrap or namespaces or seccomp
    if mode is not None:
        assert (plan.problem is None) == (plan.backend is not Backend.none)
        assert plan.problem is not None or plan.net is (Net.open if net else Net.denied)
    if mode is READ_ONLY:
        assert plan.grants.writable == ()


# ── what a policy gives ─────────────────────────────────────────────────────


def test_all_of_the_network_is_granted_or_none_of_it():
    base = Policy.default().layer("operator")
    assert not grants(base).net
    assert grants(Policy.permissive()).net
    assert grants(base.allow_net("*")).net
    for policy in (base.allow_net("example.org"), base.allow_net("*").deny_net("evil.example"), base.ask_net("*")):
        assert not grants(policy).net


def test_places_that_the_policy_denies_are_hidden_and_those_of_the_home_directory_too():
    policy = Policy.default().layer("operator").deny_read("secrets/*").deny_read("/etc/shadow").deny_write("tests/*")
    got = grants(policy)
    assert {f"{ROOT}/secrets", "/etc/shadow", f"{ROOT}/.env", f"{HOME}/.ssh", f"{HOME}/.aws"} <= set(got.hidden)
    assert f"{ROOT}/tests" in got.protected
    assert not any("*" in path for path in (*got.hidden, *got.protected))
    assert grants(Policy.permissive()).hidden == ()
    assert f"{HOME}/.aws" not in grants(policy.allow_read(f"{HOME}/.aws*")).hidden


def test_what_may_be_written_besides_the_workspace_is_what_the_operator_names():
    base = Policy.default().layer("operator")
    assert grants(base).writable == (ROOT,)
    assert grants(base.allow_write("/var/cache/build/*")).writable == (ROOT, "/var/cache/build")
    assert grants(base.allow_write("/var/c*/build")).writable == (ROOT,)
    assert grants(base.allow_write("/var/x/*").deny_write("/var/x/*")).writable == (ROOT,)
    assert grants(base.allow_write("/*")).writable == (ROOT,)
    assert grants(base.deny_write("*")).writable == ()
    strict = Policy.from_dict({"defaults": {"write": "deny"}}).layer("operator")
    assert grants(strict).writable == ()
    assert grants(strict.allow_write("out/*")).writable == (f"{ROOT}/out",)


RULES = st.sampled_from(["*", "out/*", "/var/x/*", "tests/*", ".env", "example.org", "/etc/shadow"])
BUILDERS = st.sampled_from(["allow", "deny", "ask"]).flatmap(
    lambda effect: st.sampled_from([f"{effect}_{act}" for act in ("read", "write", "net")])
)


def policies(start: Policy) -> st.SearchStrategy[Policy]:
    def build(steps):
        policy = start.layer("drawn")
        for builder, glob in steps:
            if "net" not in builder or "/" not in glob:
                policy = getattr(policy, builder)(glob)
        return policy

    return st.lists(st.tuples(BUILDERS, RULES), max_size=5).map(build)


@given(policies(Policy.default()), policies(Policy.permissive()))
def test_a_child_is_never_given_more_than_its_parent(parent, child):
    above, below = grants(parent), grants(parent.contain(child))
    assert set(below.writable) <= set(above.writable)
    assert above.net or not below.net
    assert set(above.hidden) <= set(below.hidden)
    assert set(above.protected) <= set(below.protected) | set(below.hidden)


GLOBS = ("*", "**/*", "a", "a/*", "a/b", "*.py", "b?", "a*/b", "**/b", "a/b/*", "?/c.py", "/srv/task/a", "secret*")
NAMES = ("a", "b", "c.py", "a/b", "a/c.py", "a/b/c.py", "b/a", "bb", "ab/b", "secret", "a/secrets/x", ".worktrees/w/a", ".worktrees/w/" * 9 + "a/b")


@st.composite
def policies(draw):
    """A policy of up to four rules on reading and writing, and any default."""
    effect = st.sampled_from(list(Effect))
    rule = st.builds(Rule, st.sampled_from((Act.read, Act.write)), effect, st.sampled_from(GLOBS))
    layer = Layer("operator", tuple(draw(st.lists(rule, max_size=4))))
    return Policy((layer,), Defaults(read=draw(effect), write=draw(effect)))


@given(policies(), st.sampled_from(NAMES))
def test_a_command_reads_of_the_workspace_what_the_policy_lets_be_read_and_nothing_else(policy, name):
    assert FileRules(policy).readable(name) == (policy.explain(Act.read, name).effect is Effect.allow)


@given(policies(), st.sampled_from(NAMES))
def test_a_command_writes_nothing_that_a_rule_denies_or_asks_about(policy, name):
    whole, decision = grants(policy).writable[:1] == (ROOT,), policy.explain(Act.write, name)
    if whole and FileRules(policy).writable(name):
        # What only a default asks about is said, or no command could work under the policy of those who said nothing.
        assert decision.effect is Effect.allow or (decision.effect is Effect.ask and decision.rule is None)
    if decision.effect is Effect.ask and decision.rule is None and whole:
        assert grants(policy).unbound == (ASKED_BY_DEFAULT,)


@given(policies(), st.sampled_from(NAMES), st.sampled_from(NAMES))
def test_a_directory_that_is_not_looked_into_holds_nothing_that_may_be_read(policy, directory, name):
    if not FileRules(policy).may_open_in(directory):
        assert policy.explain(Act.read, f"{directory}/{name}").effect is not Effect.allow


def test_a_directory_is_not_looked_into_where_no_rule_opens_anything_of_it():
    rules = FileRules(Policy((), Defaults(read=Effect.deny)).layer("operator").allow_read("src/*").allow_read("/etc/*"))
    assert [name for name in ("src", "src/a", "srcs", "doc", "node_modules") if rules.may_open_in(name)] == ["src", "src/a"]
    # One without a slash fits the last part of any path.
    assert FileRules(Policy((), Defaults(read=Effect.deny)).layer("operator").allow_read("note?")).may_open_in("doc")


def test_what_a_rule_asks_about_is_closed_to_commands_as_what_one_denies():
    asked = grants(Policy.permissive().layer("operator").ask_write("tests/*").ask_read("vault/*"))
    assert f"{ROOT}/vault" in asked.hidden and asked.protected == (f"{ROOT}/tests",) and asked.unbound == ()
    assert grants(Policy.permissive().layer("operator").ask_write("*").allow_write("out/*")).writable == ()
    assert grants(Policy.default()).unbound == (ASKED_BY_DEFAULT,)
    assert plan_sandbox(READ_ONLY, grants(Policy.default()), ALL).not_held == ()


def test_landlock_alone_holds_no_policy_that_only_opens_some_files_where_commands_write():
    closed, alone = attrs.evolve(GRANTS, closed=True), attrs.evolve(BARE, seccomp=True)
    problem = plan_sandbox(WRITE, closed, alone).problem
    assert problem is not None and "landlock alone cannot hide" in problem and "install bubblewrap" in problem
    assert plan_sandbox(None, closed, alone).problem is None
    assert plan_sandbox(READ_ONLY, closed, alone).problem is None
    assert plan_sandbox(WRITE, closed, LANDLOCK).problem is None


# ── what the backends are told ──────────────────────────────────────────────


def bubblewrap(mode, grants, root=False, users=True) -> list[str]:
    plan = plan_sandbox(mode, grants, ALL)
    can = attrs.evolve(ALL, root=root, users=users)
    return bubblewrap_options(
        plan, can, cwd=ROOT, temporary="/tmp/p", is_directory=lambda path: path.endswith(".ssh")
    )


def test_bubblewrap_is_told_all_of_it_the_tighter_over_the_wider():
    line = bubblewrap(WRITE, GRANTS)
    text = " ".join(line)
    assert {"--as-pid-1", "--unshare-pid", "--unshare-net"} <= set(line)
    # It would die with the thread that started it.
    assert "--die-with-parent" not in line
    order = [
        "--ro-bind / /",
        f"--bind-try {ROOT} {ROOT}",
        f"--ro-bind-try {ROOT}/tests {ROOT}/tests",
        f"--ro-bind-try /dev/null {ROOT}/.env",
    ]
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert f"--tmpfs {HOME}/.ssh --remount-ro {HOME}/.ssh" in text
    assert text.endswith(f"--chdir {ROOT}")
    assert "--cap-add" not in line
    assert "CAP_SYS_ADMIN" not in bubblewrap(WRITE, GRANTS, root=True)
    assert "--unshare-user-try" in line
    assert "--unshare-user-try" not in bubblewrap(WRITE, GRANTS, root=True, users=False)


def test_bubblewrap_leaves_the_network_where_it_is_granted_and_writes_nothing_when_reading_only():
    assert "--unshare-net" not in bubblewrap(WRITE, attrs.evolve(GRANTS, net=True))
    read_only = bubblewrap(READ_ONLY, GRANTS)
    assert [read_only[place + 1] for place, word in enumerate(read_only) if word == "--bind-try"] == ["/tmp/p"]


TREE = {"/": ["dev", "home", "usr", "srv"], "/home": ["me", "you"], "/home/me": [".ssh", "work"]}


def rules(can: Capabilities, mode=WRITE, version=7) -> dict[str, int]:
    plan = plan_sandbox(mode, GRANTS, can)
    return {rule.path: rule.access for rule in landlock_rules(plan, "/tmp/p", version, lambda path: TREE.get(path, []))}


def test_all_but_what_is_hidden_is_written_as_every_neighbour_on_the_way():
    got = rules(attrs.evolve(BARE, seccomp=True))
    assert {"/home/me/work", "/home/you", "/usr"} <= set(got)
    assert not {"/home", "/home/me", "/home/me/.ssh", "/dev"} & set(got)
    assert got["/"] == READ_DIR
    # Where a mount covers it, it needs no neighbours.
    assert "/home" in rules(LANDLOCK)


def test_no_rule_grants_making_a_device_and_only_named_devices_can_be_written():
    for can in (LANDLOCK, attrs.evolve(BARE, seccomp=True)):
        for mode in (READ_ONLY, WRITE):
            got = rules(can, mode)
            assert not any(access & (MAKE_CHAR | MAKE_BLOCK) for access in got.values())
            written = {path for path, access in got.items() if access & WRITE_FILE}
            assert written - {"/dev/shm"} == {
                "/tmp/p", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom",
                *((ROOT,) if mode is WRITE else ()),
            }  # fmt: skip
            assert not got["/usr"] & (WRITE_FILE | IOCTL_DEV)
            assert got["/usr"] & READ_FILE


@pytest.mark.parametrize("version", range(3, 9))
def test_no_rule_names_a_right_that_the_version_does_not_know(version):
    known = handled(version)[0]
    assert all(access & ~known == 0 and access for access in rules(LANDLOCK, version=version).values())
    assert len(handled(version)) == (1 if version < 4 else 2 if version < 6 else 3)


def ran(program: bytes, machine: int, number: int, first: int) -> int:
    """Run a filter, as the kernel does."""
    data = number.to_bytes(4, "little") + machine.to_bytes(4, "little") + bytes(8) + first.to_bytes(8, "little")
    steps = [program[at : at + 8] for at in range(0, len(program), 8)]
    held, at = 0, 0
    while True:
        code, yes, no = int.from_bytes(steps[at][:2], "little"), steps[at][2], steps[at][3]
        value = int.from_bytes(steps[at][4:], "little")
        at += 1
        if code == 0x20:
            held = int.from_bytes(data[value : value + 4], "little")
        elif code == 0x06:
            return value
        else:
            at += yes if (held == value if code == 0x15 else held >= value) else no


ALLOWED, REFUSED, KILLED = 0x7FFF0000, 0x0005000D, 0x80000000
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def filtered(machine: Machine, families: tuple[int, ...] | None = LOCAL) -> bytes:
    name = next(name for name, each in MACHINES.items() if each is machine)
    program = call_filter(name, families)
    assert program is not None and call_filter("other", families) is None
    return program


@machines
def test_the_filter_lets_local_sockets_be_made_and_no_others(machine):
    program = filtered(machine)
    assert ran(program, machine.number, machine.socket, 1) == ALLOWED
    # IPv4, IPv6, netlink, packets, the host of a virtual machine.
    assert [ran(program, machine.number, machine.socket, family) for family in (2, 10, 16, 17, 40)] == [REFUSED] * 5
    assert ran(program, machine.number, machine.ring, 0) == REFUSED
    assert ran(program, machine.number, machine.socket | 0x40000000, 2) == REFUSED
    assert ran(program, 0x40000003, 102, 1) == KILLED
    assert ran(program, machine.number, 0, 2) == ALLOWED


@machines
def test_in_a_namespace_the_filter_lets_those_be_made_that_know_namespaces(machine):
    program = filtered(machine, OF_NAMESPACES)
    made = [family for family in range(64) if ran(program, machine.number, machine.socket, family) == ALLOWED]
    assert made == [1, 2, 10, 16]
    assert ran(program, machine.number, machine.socket, 40) == ran(program, machine.number, machine.ring, 0) == REFUSED
    assert ran(program, machine.number, machine.socket | 0x40000000, 2) == REFUSED
    assert ran(program, machine.number, 0, 40) == ALLOWED


@machines
@pytest.mark.parametrize("families", [LOCAL, OF_NAMESPACES, None])
def test_no_filter_lets_the_keys_of_the_kernel_be_asked_for(machine, families):
    program = filtered(machine, families)
    refused = [call for call in range(600) if ran(program, machine.number, call, 1) == REFUSED]
    assert refused == sorted((*machine.keys, *(() if families is None else (machine.ring,))))
    # By the other table of the same machine too.
    assert [ran(program, machine.number, 0x40000000 | call, 1) for call in machine.keys] == [REFUSED] * 3


@machines
def test_where_the_network_is_open_all_runs_but_the_calls_for_keys_also_for_other_machines(machine):
    program = filtered(machine, None)
    assert {ran(program, machine.number, machine.socket, family) for family in range(64)} == {ALLOWED}
    assert ran(program, machine.number, machine.ring, 0) == ALLOWED
    number, keys = machine.narrow
    assert [call for call in range(600) if ran(program, number, call, 1) == REFUSED] == sorted(keys)
    # A number means another call on another machine.
    assert {ran(program, machine.number, call, 1) for call in keys} == {ran(program, number, call, 1) for call in machine.keys} == {ALLOWED}


def test_where_no_filter_works_it_is_said_what_no_namespace_holds():
    said = ("sockets to the host of a virtual machine", KEYRINGS)
    for can in (ALL, LANDLOCK):
        assert plan_sandbox(WRITE, GRANTS, attrs.evolve(can, seccomp=False)).not_held == said
        assert plan_sandbox(WRITE, attrs.evolve(GRANTS, net=True), attrs.evolve(can, seccomp=False)).not_held == (KEYRINGS,)
        assert plan_sandbox(WRITE, GRANTS, can).not_held == ()
    # Without namespaces it is only said of a boundary that may have a network: any other needs the filter.
    bare = attrs.evolve(BARE, namespaces=False, seccomp=False)
    open_to_all = attrs.evolve(GRANTS, net=True)
    assert KEYRINGS in plan_sandbox(WRITE, open_to_all, bare).not_held
    assert KEYRINGS not in plan_sandbox(WRITE, open_to_all, attrs.evolve(bare, seccomp=True)).not_held


def test_memory_that_a_command_shares_is_bounded_or_that_is_said():
    sized = plan_sandbox(WRITE, GRANTS, ALL)
    line = " ".join(bubblewrap(WRITE, GRANTS))
    assert f"--perms 1777 --size {SHARED_MEMORY_BYTES} --tmpfs /dev/shm --remount-ro /dev" in line and sized.not_held == ()
    old = attrs.evolve(ALL, sizes=False)
    plan = plan_sandbox(WRITE, GRANTS, old)
    assert plan.not_held == (MEMORY,)
    assert "--size" not in bubblewrap_options(plan, old, cwd=ROOT, temporary="/tmp/p", is_directory=lambda _: True)


def test_what_is_unfit_is_told_where_a_boundary_was_named_and_where_it_was_not():
    for mode in (WRITE, None):
        plan = plan_sandbox(mode, GRANTS, Capabilities(), unfit=["/w/bwrap is where commands could change it"])
        assert plan.not_held == (
            "workspace_write: /w/bwrap is where commands could change it; neither bubblewrap nor landlock works",
        )
        assert (plan.problem is None) == (mode is None)


def test_a_limit_is_set_only_on_request_and_cpu_time_warns_before_it_kills():
    assert limits_of(ExecCaps()) == ()
    assert limits_of(ExecCaps(60, 2**31, 512, 120.0)) == (
        ("RLIMIT_CPU", 60, 61),
        ("RLIMIT_DATA", 2**31, 2**31),
        ("RLIMIT_NOFILE", 512, 512),
    )
