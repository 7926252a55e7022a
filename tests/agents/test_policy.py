"""What a policy decides, that a child's can only be narrower, and that no malformed rule is ever kept."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.globs import MOST_CHARACTERS, MOST_TREES, closing_names
from actors.agents.policy import (
    MOST_RULES,
    NOT_ASCII,
    TOO_DEEP,
    TOO_LONG,
    Decision,
    Defaults,
    Effect,
    Layer,
    Policy,
    Rule,
    operator_policy,
    stricter,
)
from actors.agents.ports import Act
from actors.errors import ConfigError
from actors.testing.effort import count_calls

RANK = {"allow": 0, "ask": 1, "deny": 2}

ACTS = st.sampled_from([Act.read, Act.exec, Act.spawn])
EFFECTS = st.sampled_from(list(Effect))
RULES = st.builds(Rule, ACTS, EFFECTS, st.sampled_from(["*", "a", "b", "a*", "*b", "?", "x/*"]))
LAYERS = st.builds(Layer, st.sampled_from(["l", "m"]), st.lists(RULES, max_size=3).map(tuple))
POLICIES = st.builds(
    Policy,
    st.lists(LAYERS, max_size=3).map(tuple),
    st.builds(Defaults, EFFECTS, EFFECTS, EFFECTS, EFFECTS, EFFECTS),
)
TARGETS = st.sampled_from(["a", "b", "ab", "x/a", "x/b", "c"])


def fits(glob: str, act: Act, target: str) -> bool:
    """The model of a match: try every way."""

    def means(glob: str, text: str) -> bool:
        if not glob:
            return not text
        if glob[0] == "*":
            return means(glob[1:], text) or (bool(text) and means(glob, text[1:]))
        return bool(text) and glob[0] in ("?", text[0]) and means(glob[1:], text[1:])

    names = {target, target.split("/")[-1]} if act in (Act.read, Act.write) else {target}
    return any(means(glob, name) for name in names)


def effects_of_rules(policy: Policy, act: Act, target: str) -> list[int]:
    rules = [rule for layer in policy.layers for rule in layer.rules]
    return [RANK[rule.effect] for rule in rules if rule.act is act and fits(rule.glob, act, target)]


def effective(policy: Policy, act: Act, target: str) -> int:
    """The model of a decision: the strictest rule that fits, else the default."""
    return max(effects_of_rules(policy, act, target), default=RANK[policy.defaults.of(act)])


def narrowed(root: Policy, wishes: list[Policy], act: Act, target: str) -> int:
    """The model of contain: what the root gives, or what anybody below wants stricter."""
    default = max(RANK[policy.defaults.of(act)] for policy in (root, *wishes))
    base = max(effects_of_rules(root, act, target), default=default)
    return max([base, *(effect for wish in wishes for effect in effects_of_rules(wish, act, target) if effect > 0)])


@given(POLICIES, st.lists(st.tuples(POLICIES, st.booleans()), max_size=5), ACTS, TARGETS)
def test_contain_never_widens_at_any_depth_and_in_any_order(root, steps, act, target):
    policy, wishes, pending = root, [], Policy.permissive()
    last = effective(root, act, target)
    for wish, now in steps:
        # Either the policy of this level is contained now, or the wishes of several levels first in one another.
        pending = pending.contain(wish)
        wishes.append(wish)
        if now:
            policy, pending = policy.contain(pending), Policy.permissive()
            got = RANK[policy.explain(act, target).effect]
            assert got >= last
            last = got
    policy = policy.contain(pending)
    assert RANK[policy.explain(act, target).effect] == narrowed(root, wishes, act, target)
    assert Policy.from_json(policy.to_json()) == policy


def test_the_ask_of_a_child_does_not_open_what_its_parent_denies_by_default():
    wish = Policy.permissive().layer("child").ask_net("*")
    child = Policy.default().contain(wish)
    assert child.explain(Act.net, "example.com:443") == Decision(Effect.deny)
    assert Policy.from_dict(child.to_dict()).explain(Act.net, "example.com:443") == Decision(Effect.deny)
    # Yet it binds where the parent allows, and an ask of the operator's own opens.
    parent = Policy.default().layer("operator").allow_net("a.example").ask_net("b.example")
    asked = parent.contain(wish)
    assert asked.explain(Act.net, "a.example:1") == Decision(Effect.ask, "*", "child")
    assert asked.explain(Act.net, "b.example:1") == Decision(Effect.ask, "b.example", "operator")
    assert asked.explain(Act.net, "c.example:1") == Decision(Effect.deny)


def test_a_layer_that_narrows_holds_no_allow():
    rule = {"act": "read", "effect": "allow", "glob": "*"}
    with pytest.raises(ConfigError, match=r"layers\[0\]\.rules: layer 'l' narrows"):
        Policy.from_dict({"layers": [{"name": "l", "rules": [rule], "narrows": True}]})
    with pytest.raises(ConfigError, match=r"layers\[0\]\.narrows: must be true or false"):
        Policy.from_dict({"layers": [{"name": "l", "rules": [], "narrows": 1}]})


@given(POLICIES, POLICIES, ACTS, TARGETS)
def test_containing_twice_is_containing_once(parent, child, act, target):
    once = parent.contain(child)
    assert once.contain(child) is once
    assert once.contain(Policy.permissive()) is once


@given(POLICIES, ACTS, TARGETS)
def test_the_named_rule_is_the_first_of_the_effect_that_decided(policy, act, target):
    decision = policy.explain(act, target)
    fitting = [
        (rule.glob, layer.name)
        for layer in policy.layers
        for rule in layer.rules
        if rule.act is act and rule.effect is decision.effect and fits(rule.glob, act, target)
    ]
    assert (decision.rule, decision.layer) == (fitting[0] if fitting else (None, None))


@given(POLICIES, POLICIES, ACTS, TARGETS)
def test_merge_adds_every_rule_and_takes_the_stricter_defaults(policy, overlay, act, target):
    merged = policy.merge(overlay)
    assert merged.layers == policy.layers + overlay.layers
    assert merged.defaults.of(act) is stricter(policy.defaults.of(act), overlay.defaults.of(act))
    assert RANK[merged.explain(act, target).effect] == effective(merged, act, target)


@given(POLICIES)
def test_the_plain_form_and_the_json_form_give_the_same_policy_back(policy):
    assert Policy.from_dict(policy.to_dict()) == policy
    assert Policy.from_json(policy.to_json()) == policy
    assert Policy.from_json(policy.to_json()).to_json() == policy.to_json()


def test_check_is_explain():
    assert Policy.check is Policy.explain


def test_deny_beats_ask_and_ask_beats_allow_whatever_the_order_and_however_exact():
    policy = (
        Policy.permissive()
        .layer("low")
        .deny_read("s*")
        .ask_read("*")
        .layer("high")
        .allow_read("secret.txt")
        .allow_read("*")
    )
    assert policy.explain(Act.read, "secret.txt") == Decision(Effect.deny, "s*", "low")
    assert policy.explain(Act.read, "other.txt") == Decision(Effect.ask, "*", "low")
    assert policy.explain(Act.write, "secret.txt") == Decision(Effect.allow, None, None)


def test_the_default_policy_is_what_the_docs_say():
    policy = Policy.default()
    decided = {act: policy.explain(act, "x").effect.value for act in Act}
    assert decided == {"read": "allow", "write": "ask", "exec": "ask", "net": "deny", "spawn": "allow"}
    assert not policy.is_permissive


@pytest.mark.parametrize("act", [Act.read, Act.write])
@pytest.mark.parametrize(
    ("target", "rule"),
    [
        (".env", ".env"), ("a/b/.env", ".env"), ("k/server.pem", "*.pem"), (".ssh/id_rsa", "id_rsa"), ("a.key", "*.key"),
        (".actors", ".actors"), (".actors/runs.db", ".actors/*"), ("a/.actors/agents/x.md", "*/.actors/*"),
    ],
)
def test_secrets_and_the_store_stay_denied_under_allows_of_the_operator(act, target, rule):
    policy = Policy.default().layer("operator").allow_read("*").allow_write("*").allow_read(target)
    assert policy.explain(act, target) == Decision(Effect.deny, rule, "builtin")


def test_permissive_is_exactly_no_rules_and_all_allow():
    assert Policy.permissive().is_permissive
    assert Policy.permissive().layer("child").is_permissive
    assert not Policy.permissive().layer("child").allow_read("*").is_permissive
    assert not Policy(defaults=Defaults("allow", "allow", "allow", "allow", "ask")).is_permissive
    assert all(Policy.permissive().explain(act, "x").effect is Effect.allow for act in Act)


def test_a_parent_that_allows_everything_still_gives_its_reader_no_write():
    parent = Policy.default().layer("parent").allow_read("*").allow_write("*").allow_exec("*")
    child = parent.contain(Policy.permissive().layer("child").deny_write("*"))
    assert parent.explain(Act.write, "child.txt") == Decision(Effect.allow, "*", "parent")
    assert child.explain(Act.write, "child.txt") == Decision(Effect.deny, "*", "child")
    assert child.explain(Act.exec, "ls") == Decision(Effect.allow, "*", "parent")
    assert child.explain(Act.read, "child.txt") == Decision(Effect.allow, "*", "parent")


def test_a_child_that_is_silent_about_a_path_restores_nothing():
    parent = Policy.default().layer("parent").allow_read("*").deny_read("secret.txt").allow_write("*")
    child = parent.contain(Policy.permissive().layer("child"))
    assert child.explain(Act.read, "secret.txt") == Decision(Effect.deny, "secret.txt", "parent")
    assert child.explain(Act.write, "out.txt") == Decision(Effect.allow, "*", "parent")


def test_a_deep_tree_of_one_wish_carries_its_rules_once():
    policy = Policy.default()
    for _level in range(50):
        policy = policy.contain(Policy.permissive().layer("child").deny_write("*"))
    assert [layer.name for layer in policy.layers] == ["builtin", "child"]


def test_the_allow_of_a_provider_yields_to_a_deny():
    door = Policy.permissive().layer("provider").allow_net("api.example.com:443")
    assert Policy.default().merge(door).explain(Act.net, "api.example.com:443").layer == "provider"
    closed = Policy.default().layer("operator").deny_net("api.example.com")
    decision = closed.merge(door).explain(Act.net, "api.example.com:443")
    assert decision == Decision(Effect.deny, "api.example.com", "operator")


def test_programs_and_hosts_are_no_paths():
    policy = Policy.permissive().layer("l").deny_exec("rm").deny_net("host")
    assert policy.explain(Act.exec, "rm").effect is Effect.deny
    assert policy.explain(Act.exec, "/bin/rm").effect is Effect.allow
    assert policy.explain(Act.net, "host:1").effect is Effect.deny
    assert policy.explain(Act.net, "x/host").effect is Effect.allow
    # What no resolved path looks like may well be a command line.
    assert policy.deny_exec("cat ../*").explain(Act.exec, "cat ../x").effect is Effect.deny


def test_a_spawn_is_governed_by_its_own_act_only():
    policy = Policy.permissive().layer("l").deny_read("*").deny_write("*").deny_exec("*").deny_net("*")
    assert policy.explain(Act.spawn, "searcher").effect is Effect.allow
    assert policy.deny_spawn("search*").explain(Act.spawn, "searcher").rule == "search*"


@pytest.mark.parametrize("act", list(Act))
@pytest.mark.parametrize("policy", [Policy.permissive(), Policy.default()])
def test_a_target_too_long_to_judge_is_denied_by_a_named_rule(act, policy):
    assert policy.explain(act, "a" * (MOST_CHARACTERS + 1)) == Decision(Effect.deny, TOO_LONG, "limits")
    assert policy.explain(act, "a" * MOST_CHARACTERS).rule is None


@pytest.mark.parametrize("host", ["b\xfccher.example", "\uff45xample.com", "example\u3002com", "exam\xadple.com", "\u0435xample.com"])
@pytest.mark.parametrize("policy", [Policy.permissive().layer("o").deny_net("example.com"), Policy.default().layer("o").allow_net("*")])
def test_a_host_that_is_not_in_its_ascii_form_is_denied_by_a_named_rule(host, policy):
    """Libraries resolve it to another name than the one that rules are written about."""
    assert policy.explain(Act.net, f"{host}:443") == Decision(Effect.deny, NOT_ASCII, "limits")
    assert policy.explain(Act.net, "xn--bcher-kva.example:443").effect is policy.explain(Act.net, "other.example:443").effect
    with pytest.raises(ConfigError, match="hosts are judged in their ASCII form; write xn--"):
        policy.layer("more").deny_net(host)


@pytest.mark.parametrize("name", ["risky-programs", "limits"])
def test_a_layer_cannot_have_the_name_that_decisions_without_a_rule_carry(name):
    """A deny of such a layer would be taken for one of these, which count for less."""
    told = "decisions that stand in no file carry that name"
    with pytest.raises(ConfigError, match=told):
        Policy.default().layer(name)
    with pytest.raises(ConfigError, match=told) as refused:
        Policy.from_dict({"layers": [{"name": name, "rules": []}]})
    assert [place for place, _ in refused.value.problems] == ["policy.layers[0].name"]
    with pytest.raises(ValueError, match=told):
        Layer(name, (Rule("exec", "deny", "rm*"),))


def test_every_builder_adds_its_own_act_and_effect():
    for act in Act:
        for effect in Effect:
            policy = getattr(Policy.default().layer("l"), f"{effect}_{act}")("g")
            assert policy.layers[-1] == Layer("l", (Rule(act, effect, "g"),))


def test_a_rule_without_an_open_layer_is_an_error():
    opened = Policy.default().layer("mine").deny_read("a")
    for closed in (
        Policy(),
        Policy.default(),
        Policy.permissive(),
        opened.merge(Policy.permissive()),
        opened.contain(Policy.permissive().layer("child").deny_read("b")),
        Policy.from_dict(opened.to_dict()),
    ):
        with pytest.raises(ConfigError, match=r"call layer\(name\) first"):
            closed.deny_read("x")


def test_builders_leave_what_they_were_called_on_as_it_was():
    policy = Policy.default().layer("l")
    policy.deny_read("x")
    assert policy.explain(Act.read, "x").effect is Effect.allow


@pytest.mark.parametrize("glob", ["", "a\0", "a\nb", "x" * (MOST_CHARACTERS + 1), "./x", "secrets/", None])
def test_a_malformed_deny_is_refused_with_layer_and_rule_and_never_kept(glob):
    with pytest.raises(ConfigError, match=r"layer 'operator'.*rule deny read"):
        Policy.default().layer("operator").deny_read(glob)
    plain = {"layers": [{"name": "operator", "rules": [{"act": "read", "effect": "deny", "glob": glob}]}]}
    with pytest.raises(ConfigError, match=r"policy\.layers\[0\]\.rules\[0\]\.glob: rule .* of layer 'operator'"):
        Policy.from_dict(plain)
    with pytest.raises(ValueError, match="rule deny read"):
        Rule("read", "deny", glob)


@pytest.mark.parametrize("glob", ["https://example.com", "example.com/x", "user@host", "a b"])
def test_a_net_rule_that_could_match_no_host_is_refused(glob):
    with pytest.raises(ConfigError, match="write the host"):
        Policy.default().layer("operator").deny_net(glob)


def test_an_error_stays_one_short_line_however_long_the_glob():
    with pytest.raises(ConfigError) as refused:
        Policy.default().layer("l").deny_read("\n" + "x" * 100_000)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, None, 3])
def test_a_layer_needs_a_name_that_can_be_printed(name):
    with pytest.raises(ConfigError, match="name"):
        Policy.default().layer(name)


def test_a_layer_holds_a_bounded_number_of_rules_and_characters():
    full = Layer("l", tuple(Rule(Act.read, Effect.deny, f"f{place}") for place in range(MOST_RULES)))
    with pytest.raises(ConfigError, match="at most 1000"):
        Policy((full,), open=True).deny_read("one more")
    with pytest.raises(ConfigError, match="32768"):
        Policy.from_dict(
            {"layers": [{"name": "l", "rules": [{"act": "exec", "effect": "deny", "glob": "x" * 4_000}] * 9}]}
        )


def test_a_file_that_lacks_defaults_reads_as_the_cautious_ones():
    for plain in ({}, {"defaults": {}}, {"defaults": {"read": "allow", "write": "ask", "exec": "ask"}}):
        policy = Policy.from_dict(plain)
        assert policy.layers == ()
        assert policy.defaults == Defaults("allow", "ask", "ask", "deny", "allow")


def test_a_missing_net_reads_as_deny_although_all_else_is_allowed():
    plain = {"defaults": {"read": "allow", "write": "allow", "exec": "allow"}, "layers": []}
    assert Policy.from_dict(plain).explain(Act.net, "example.com:443") == Decision(Effect.deny)


def test_pattern_is_read_as_glob():
    rule = {"act": "write", "effect": "deny", "pattern": "secrets/*"}
    policy = Policy.from_dict({"layers": [{"name": "old", "rules": [rule]}]})
    assert policy.explain(Act.write, "secrets/a") == Decision(Effect.deny, "secrets/*", "old")
    assert policy.to_dict()["layers"][0]["rules"] == [{"act": "write", "effect": "deny", "glob": "secrets/*"}]


def test_all_problems_are_told_at_once_with_their_paths():
    plain = {
        "default": {},
        "defaults": {"net": "no", "read": True, "fly": "deny"},
        "layers": [
            {
                "name": "op",
                "rule": [],
                "rules": [
                    {"act": "reed", "effect": "deny", "glob": "a", "when": 1},
                    {"act": "read", "effect": "deny", "glob": "a", "pattern": "b"},
                    {"act": "read"},
                    7,
                ],
            },
            {"rules": {}},
            {"name": "empty"},
            "x",
        ],
    }
    with pytest.raises(ConfigError) as refused:
        Policy.from_dict(plain, at="task.policy")
    assert sorted(path for path, _text in refused.value.problems) == [
        "task.policy.default",
        "task.policy.defaults.fly",
        "task.policy.defaults.net",
        "task.policy.defaults.read",
        "task.policy.layers[0].rule",
        "task.policy.layers[0].rules[0].act",
        "task.policy.layers[0].rules[0].when",
        "task.policy.layers[0].rules[1].pattern",
        "task.policy.layers[0].rules[2].effect",
        "task.policy.layers[0].rules[2].glob",
        "task.policy.layers[0].rules[3]",
        "task.policy.layers[1].name",
        "task.policy.layers[1].rules",
        "task.policy.layers[2].rules",
        "task.policy.layers[3]",
    ]


@pytest.mark.parametrize("plain", [None, [], "deny", 3, {"layers": None}, {"layers": "x"}, {"defaults": None}])
def test_what_is_no_table_is_refused(plain):
    with pytest.raises(ConfigError, match="must be a"):
        Policy.from_dict(plain)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"layers": [], "layers": []}', '{"defaults": {"net": NaN}}'])
def test_json_that_is_none_or_says_a_thing_twice_is_refused(text):
    with pytest.raises(ConfigError, match="policy"):
        Policy.from_json(text)


def test_an_operator_who_says_nothing_gets_the_default_policy():
    assert operator_policy({}) == Policy.default()


def test_the_policy_of_a_task_file_stands_above_the_secrets():
    policy = operator_policy(
        {
            "defaults": {"write": "allow", "net": "deny"},
            "layers": [{"name": "operator", "rules": [{"act": "read", "effect": "allow", "glob": "*"}]}],
        }
    )
    assert policy.explain(Act.write, "a.txt") == Decision(Effect.allow)
    assert policy.explain(Act.read, "a.txt") == Decision(Effect.allow, "*", "operator")
    assert policy.explain(Act.read, "conf/.env") == Decision(Effect.deny, ".env", "builtin")
    assert [path for path, _text in _problems({"layers": 1})] == ["policy.layers"]


def _problems(plain):
    with pytest.raises(ConfigError) as refused:
        operator_policy(plain)
    return refused.value.problems


def test_acts_may_be_given_as_words_and_unknown_ones_are_refused():
    assert Policy.default().explain("net", "h:1").effect is Effect.deny
    with pytest.raises(ValueError, match="fly"):
        Policy.default().explain("fly", "x")


def test_the_json_form_is_plain_text_with_every_default_written_out():
    assert json.loads(Policy.permissive().to_json()) == {
        "defaults": {"read": "allow", "write": "allow", "exec": "allow", "net": "allow", "spawn": "allow"},
        "layers": [],
    }


def test_what_may_not_be_read_may_not_be_read_of_a_work_tree_and_what_may_does_not_open_it():
    policy = Policy((), Defaults(read=Effect.deny)).layer("op").allow_read("src/*").deny_read("src/vault/*").ask_read("src/b")
    several = Policy.permissive().merge(policy.layer("more").allow_read(".worktrees/*"))
    for tree in ("", ".worktrees/w-1/"):
        seen = [several.explain(Act.read, f"{tree}src/{name}").effect.value for name in ("vault/a", "b", "c")]
        assert seen == ["deny", "ask", "allow"]
    assert policy.explain(Act.read, ".worktrees/w-1/src/c").effect is Effect.deny
    assert several.explain(Act.read, ".worktrees/src/vault").effect is Effect.allow


@pytest.mark.parametrize("act", [Act.read, Act.write])
def test_what_is_closed_by_its_place_is_closed_in_work_trees_at_any_depth(act):
    policy = Policy.permissive().layer("op")
    policy = (policy.deny_read("src/*").ask_read("b") if act is Act.read else policy.deny_write("src/*").ask_write("b")).deny_write("src/*")
    for tree in ("", ".worktrees/w-1/", ".worktrees/w-1/.worktrees/w-2/", ".worktrees/w/" * MOST_TREES):
        assert [policy.explain(act, f"{tree}{name}").effect.value for name in ("src/a", "src/x/y", "b", "c")] == ["deny", "deny", "ask", "allow"]
    # What no tree is has no names of one: neither the folder, nor a tree itself, nor one that lies elsewhere.
    for path in (".worktrees", ".worktrees/src", "old/.worktrees/w/src/a", ".worktreesx/w/src/a", "x/src/a"):
        assert policy.explain(act, path).effect is Effect.allow


@pytest.mark.parametrize("act", [Act.read, Act.write])
def test_a_path_in_more_work_trees_than_are_looked_at_is_closed_where_anything_is(act):
    deep = ".worktrees/w/" * (MOST_TREES + 1) + "a"
    closes, opens = Policy.permissive().layer("op").deny_read("src/*").ask_write("src/*"), Policy.permissive().layer("op").allow_read("*")
    assert closes.explain(act, deep) == Decision(Effect.deny, TOO_DEEP, "limits")
    assert closes.explain(act, f"x/{deep}").effect is opens.explain(act, deep).effect is Effect.allow
    assert closes.contain(Policy.permissive().layer("child").allow_read("*")).explain(act, deep).effect is Effect.deny


@pytest.mark.parametrize("part", [".worktrees/x/", ".worktrees/", ".worktrees//", "q/", ".worktrees/xx/y/"])
def test_a_path_of_many_work_trees_is_held_against_a_few_names_however_long_it_is(part):
    names = {length: closing_names(part * length + "a") or () for length in (30, 300)}
    assert max(map(len, names.values())) <= MOST_TREES + 2
    policy = Policy.permissive().layer("op").deny_read("src/*")
    made = {}
    for length in (30, 300):
        policy.explain(Act.read, part * length)
        with count_calls() as calls:
            policy.explain(Act.read, f"{part * length}a")
        made[length] = calls.made
    assert made[300] <= made[30], made
