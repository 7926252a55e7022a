"""Specs and flags: what is refused, in which words, and what is filled in."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import ConfigError
from actors.runtime.mailbox import DEFAULT_BOUND, Overflow
from actors.runtime.restart import Restart
from actors.runtime.specs import (
    BRUTAL,
    OVERFLOWS,
    AutoShutdown,
    Backoff,
    Budget,
    ChildSpec,
    ChildType,
    Flags,
    OnRestart,
    Strategy,
    check_specs,
    read_flags,
    read_spec,
    warnings_of,
)


def start(*args: object) -> None:
    """Stand for a child's work."""


def faults_of(call: Callable[[], object]) -> dict[str, str]:
    with pytest.raises(ConfigError) as refused:
        call()
    return dict(refused.value.problems)


def faults(*specs: Any, flags: Any = None) -> dict[str, str]:
    return faults_of(lambda: check_specs(list(specs), flags))


def good(**more: Any) -> dict[str, Any]:
    return {"id": "db", "start": start, **more}


# ── what is filled in ───────────────────────────────────────────────────────


def test_F18_a_spec_of_id_and_start_gets_the_defaults():
    (spec,) = check_specs([{"id": "db", "start": start}])
    assert spec == ChildSpec("db", start)
    assert attrs.asdict(spec) == {
        "id": "db",
        "start": start,
        "args": (),
        "restart": Restart.permanent,
        "type": ChildType.worker,
        "grace": 5.0,
        "significant": False,
        "budget": None,
        "name": None,
        "start_timeout": None,
        "messages": OnRestart.discard,
        "mailbox": DEFAULT_BOUND,
        "overflow": "wait",
    }


def test_F18_a_supervisor_gets_all_the_time_it_wants_unless_told_otherwise():
    assert read_spec(good(type="supervisor"), "spec", Flags()).grace == math.inf
    assert ChildSpec("db", start, type=ChildType.supervisor).grace == math.inf
    assert ChildSpec("db", start, type=ChildType.supervisor, grace=2).grace == 2.0


def test_C17_flags_are_one_restart_in_five_seconds_by_default():
    assert read_flags(None) == read_flags({}) == Flags()
    assert attrs.asdict(Flags()) == {
        "strategy": Strategy.one_for_one,
        "intensity": 1,
        "period": 5.0,
        "auto_shutdown": AutoShutdown.never,
        "max_children": None,
        "backoff": None,
        "dynamic": False,
    }


def test_words_of_a_file_become_members_and_records():
    plain = good(
        start=(start, 1, "two"),
        restart="transient",
        grace="brutal",
        type="supervisor",
        significant=True,
        budget={"intensity": 3, "period": 60},
        name="store",
        start_timeout=2,
        messages="keep",
        mailbox=8,
        overflow="drop_oldest",
    )
    flags = read_flags({"strategy": "rest_for_one", "auto_shutdown": "any_significant", "backoff": {"minimum": 1, "maximum": 8}})
    assert flags == Flags(Strategy.rest_for_one, 1, 5.0, AutoShutdown.any_significant, backoff=Backoff(1.0, 8.0))
    spec = read_spec(plain, "spec", flags)
    assert spec.start is start and spec.args == (1, "two")
    assert spec.restart is Restart.transient and spec.grace is BRUTAL and spec.type is ChildType.supervisor
    assert spec.budget == Budget(3, 60.0) and spec.messages is OnRestart.keep
    assert (spec.name, spec.start_timeout, spec.mailbox, spec.overflow) == ("store", 2.0, 8, "drop_oldest")
    assert check_specs((plain,), flags) == (spec,)


@pytest.mark.parametrize(("given", "kept"), [(0, 0.0), (3, 3.0), (math.inf, math.inf), ("infinity", math.inf), ("brutal", BRUTAL), (BRUTAL, BRUTAL)])
def test_a_grace_is_seconds_for_ever_or_brutal(given, kept):
    spec = read_spec(good(grace=given), "spec", Flags())
    assert spec.grace == kept and type(spec.grace) is type(kept)


def test_a_record_keeps_words_as_members_as_well():
    assert ChildSpec("db", start, restart="temporary").restart is Restart.temporary
    assert Flags(strategy="one_for_all", period=2).strategy is Strategy.one_for_all
    assert isinstance(Flags(period=2).period, float)
    assert ChildSpec("db", (start, 1)).args == (1,)


def test_what_is_a_record_already_is_taken_as_it_is():
    spec, flags = ChildSpec("db", start), Flags(intensity=7)
    assert read_spec(spec, "spec", flags) is spec
    assert read_flags(flags) is flags
    assert check_specs([spec], flags)[0] is spec


def test_a_start_may_be_anything_that_can_be_called():
    for each in (start, print, dict, partial(start, 1), lambda: None):
        assert read_spec(good(start=each), "spec", Flags()).start is each


def test_the_words_for_overflow_are_those_of_the_mailbox():
    assert tuple(member.value for member in Overflow) == OVERFLOWS
    assert [Overflow(read_spec(good(overflow=word), "spec", Flags()).overflow) for word in OVERFLOWS] == list(Overflow)


# ── what is refused ─────────────────────────────────────────────────────────


def test_L1_a_spec_without_an_id_is_refused():
    assert faults({"start": start}) == {"children[0].id": "missing; it has no default"}


def test_L2_a_spec_without_a_start_is_refused():
    assert faults({"id": "db"}) == {"children['db'].start": "missing; it has no default"}


def test_L4_an_unknown_restart_type_is_refused_and_the_one_meant_is_named():
    assert faults(good(restart="permanant")) == {
        "children['db'].restart": "'permanant' cannot be used; give one of permanent, transient, temporary; did you mean permanent?"
    }
    assert faults(good(restart=3)) == {
        "children['db'].restart": "3 cannot be used; give one of permanent, transient, temporary"
    }


@pytest.mark.parametrize("grace", [-1, -0.5, math.nan, -math.inf, "long", "inf", None, True, 10**400, [1]])
def test_L5_a_grace_that_is_no_seconds_infinity_or_brutal_is_refused(grace):
    found = faults(good(grace=grace))
    assert list(found) == ["children['db'].grace"]
    assert found["children['db'].grace"].endswith("cannot be used; give seconds of 0 or more, infinity, or brutal")


def test_L8_an_id_is_used_once_in_a_list():
    assert faults(good(), good(id="web"), good(), ChildSpec("db", start)) == {
        "children[2].id": "'db' is the id of children[0] already; give each child its own",
        "children[3].id": "'db' is the id of children[0] already; give each child its own",
    }


def test_I1_children_of_a_dynamic_supervisor_may_repeat_an_id():
    assert len(check_specs([good(), good()], {"dynamic": True})) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("strategy", "one_for_none"),
        ("strategy", None),
        ("strategy", ["one_for_one"]),
        ("intensity", -1),
        ("intensity", 1.0),
        ("intensity", math.inf),
        ("intensity", True),
        ("intensity", "3"),
        ("period", 0),
        ("period", -1.0),
        ("period", math.inf),
        ("period", math.nan),
        ("period", True),
        ("period", "5"),
        ("period", 10**400),
        ("auto_shutdown", "always"),
        ("auto_shutdown", False),
        ("backoff", 1.0),
        ("backoff", True),
        ("dynamic", 1),
        ("dynamic", "yes"),
    ],
)
def test_L9_flags_out_of_range_are_refused(key, value):
    found = faults_of(lambda: read_flags({key: value}))
    assert list(found) == [f"flags.{key}"]
    assert "; give " in found[f"flags.{key}"]
    assert faults_of(lambda: Flags(**{key: value})) == found


def test_L12_an_unknown_key_is_refused_with_its_path():
    assert faults(good(restrat="temporary", colour="red", **{"": 1})) == {
        "children['db'].restrat": "unknown key; did you mean restart?",
        "children['db'].colour": "unknown key; remove it",
        "children['db']['']": "unknown key; remove it",
    }
    assert faults({**good(), 3: 4}) == {"children['db'][3]": "unknown key; remove it"}
    assert faults_of(lambda: read_flags({"intensty": 3})) == {"flags.intensty": "unknown key; did you mean intensity?"}
    assert faults_of(lambda: read_flags({"backoff": {"minimum": 1, "maximum": 2, "jiter": 1}}, "app.flags")) == {
        "app.flags.backoff.jiter": "unknown key; did you mean jitter?"
    }
    assert faults(good(budget={"intensity": 1, "periods": 1})) == {
        "children['db'].budget.periods": "unknown key; did you mean period?",
        "children['db'].budget.period": "missing; it has no default",
    }


def test_all_faults_of_all_specs_and_the_flags_are_told_at_once():
    specs = [
        {"id": "a", "start": 1, "grace": -1},
        good(id=[]),
        7,
        good(id="d", restart="never", budget={"intensity": -1, "period": 0}),
        good(id="fine"),
        good(id="fine", mailbox=0),
    ]
    assert list(faults(*specs, flags={"period": 0, "max_children": 3})) == [
        "flags.period",
        "flags.max_children",
        "children['a'].start",
        "children['a'].grace",
        "children[1].id",
        "children[2]",
        "children['d'].restart",
        "children['d'].budget.intensity",
        "children['d'].budget.period",
        "children[5].id",
        "children[5].mailbox",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("id", []),
        ("id", {}),
        ("start", None),
        ("start", "start"),
        ("start", ()),
        ("start", (1, start)),
        ("start", [start]),
        ("args", "text"),
        ("args", 1),
        ("args", None),
        ("restart", None),
        ("type", "agent"),
        ("significant", 1),
        ("significant", "true"),
        ("budget", 3),
        ("name", ""),
        ("name", 3),
        ("start_timeout", 0),
        ("start_timeout", -1),
        ("start_timeout", math.inf),
        ("start_timeout", math.nan),
        ("start_timeout", True),
        ("messages", "drop"),
        ("mailbox", 0),
        ("mailbox", True),
        ("mailbox", 2.0),
        ("mailbox", None),
        ("overflow", "drop"),
        ("overflow", None),
    ],
)
def test_each_field_of_a_spec_has_its_own_error(key, value):
    found = faults_of(lambda: read_spec(good(**{key: value}), "spec", Flags()))
    assert list(found) == [f"spec.{key}"]
    assert found[f"spec.{key}"].startswith(f"{value!r} cannot be used; give ")
    child = "child[%r]" % good(**{key: value})["id"]
    assert list(faults_of(lambda: ChildSpec(**good(**{key: value})))) == [f"{child}.{key}"]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"minimum": 0, "maximum": 1}, "minimum"),
        ({"minimum": 2, "maximum": 1}, "maximum"),
        ({"minimum": 1, "maximum": math.inf}, "maximum"),
        ({"minimum": 1, "maximum": 1, "jitter": -0.1}, "jitter"),
        ({"minimum": 1, "maximum": 1, "jitter": math.inf}, "jitter"),
        ({"minimum": 1, "maximum": 1, "reset_after": 0}, "reset_after"),
    ],
)
def test_a_backoff_out_of_range_is_refused(given, path):
    found = faults_of(lambda: read_flags({"backoff": given}))
    assert list(found) == [f"flags.backoff.{path}"]
    assert faults_of(lambda: Backoff(**given)) == {f"backoff.{path}": found[f"flags.backoff.{path}"]}


def test_the_edges_of_a_backoff_are_allowed():
    assert Backoff(1, 1, 0, math.inf) == Backoff(1.0, 1.0, 0.0, math.inf)


def test_a_budget_made_by_hand_is_checked_too():
    assert list(faults_of(lambda: Budget(-1, 0))) == ["budget.intensity", "budget.period"]
    assert Budget(0, 1) == Budget(0, 1.0)


def test_arguments_stand_in_one_place():
    found = faults(good(start=(start, 1), args=(2,)))
    assert found == {"children['db'].args": "(2,) comes on top of arguments in start; write all of them in one place"}


@pytest.mark.parametrize("specs", [None, "db", 3, {"id": "db", "start": start}, {1, 2}, ChildSpec("db", start)])
def test_what_is_no_list_of_specs_is_refused(specs):
    assert list(faults_of(lambda: check_specs(specs))) == ["children"]
    assert list(faults_of(lambda: check_specs(specs, {"period": 0}, "tree.children"))) == ["flags.period", "tree.children"]


@pytest.mark.parametrize("flags", [3, "one_for_one", [("intensity", 1)], ChildSpec("db", start), False])
def test_what_is_no_mapping_of_flags_is_refused(flags):
    assert list(faults_of(lambda: read_flags(flags))) == ["flags"]


# ── what only several fields, or two records, show ──────────────────────────


@pytest.mark.parametrize("plain", [good(restart="transient", significant=True), ChildSpec("db", start, restart=Restart.transient, significant=True)])
def test_H9_a_significant_child_needs_a_supervisor_that_shuts_down_for_it(plain):
    path = "children['db'].significant"
    assert list(faults(plain)) == [path] and "auto_shutdown" in faults(plain)[path]
    assert list(faults_of(lambda: read_spec(plain, "spec", Flags()))) == ["spec.significant"]
    for mode in ("any_significant", "all_significant"):
        assert check_specs([plain], {"auto_shutdown": mode})[0].significant


def test_H9_with_faulty_flags_nothing_is_said_of_what_they_would_have_shown():
    plain = good(restart="transient", significant=True)
    assert list(faults(plain, flags={"auto_shutdown": "any"})) == ["flags.auto_shutdown"]


def test_H10_a_permanent_child_cannot_be_significant():
    flags = Flags(auto_shutdown=AutoShutdown.any_significant)
    assert list(faults(good(significant=True), flags=flags)) == ["children['db'].significant"]
    assert list(faults_of(lambda: ChildSpec("db", start, significant=True))) == ["child['db'].significant"]


@pytest.mark.parametrize("mode", ["any_significant", "all_significant"])
def test_H13_a_dynamic_supervisor_has_no_auto_shutdown(mode):
    assert list(faults_of(lambda: read_flags({"dynamic": True, "auto_shutdown": mode}))) == ["flags.auto_shutdown"]


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_I15_a_dynamic_supervisor_is_one_for_one(strategy):
    assert list(faults_of(lambda: read_flags({"dynamic": True, "strategy": strategy}))) == ["flags.strategy"]
    assert list(faults_of(lambda: Flags(Strategy(strategy), dynamic=True))) == ["flags.strategy"]


def test_only_a_dynamic_supervisor_has_a_most_of_children():
    assert read_flags({"dynamic": True, "max_children": 0}).max_children == 0
    assert list(faults_of(lambda: Flags(max_children=3))) == ["flags.max_children"]
    for value in (-1, True, 1.0, math.inf):
        assert list(faults_of(lambda value=value: Flags(dynamic=True, max_children=value))) == ["flags.max_children"]


def test_a_changed_copy_is_checked_again():
    assert list(faults_of(lambda: attrs.evolve(ChildSpec("db", start), grace=-1))) == ["child['db'].grace"]


# ── ids and texts ───────────────────────────────────────────────────────────


def test_D15_ids_of_mixed_kinds_keep_the_order_given():
    ids = ["ch7", 3, ("ch", 10), None, b"ch3", 2.5, frozenset({1})]
    assert [spec.id for spec in check_specs([good(id=each) for each in ids])] == ids


class Hostile:
    """Cannot be told and cannot be hashed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_told_is_refused_all_the_same():
    found = faults(good(id=Hostile(), grace=Hostile()))
    assert list(found) == ["children[0].id", "children[0].grace"]
    assert found["children[0].grace"].startswith("<a Hostile whose text cannot be had: RuntimeError> cannot be used")


def test_a_long_value_is_told_in_short_and_on_one_line():
    (text,) = faults(good(name=["x" * 1000, "\n"])).values()
    assert len(text) < 150 and "\n" not in text


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(), st.text("abc", max_size=2), st.lists(st.integers(), max_size=2),
    st.sampled_from(["permanent", "transient", "temporary", "supervisor", "brutal", "infinity", "keep", "fail", start, BRUTAL]),
)  # fmt: skip
KEYS = [field.name for field in attrs.fields(ChildSpec)]


@given(st.dictionaries(st.sampled_from([*KEYS, "grcae"]), JUNK, max_size=5), st.sampled_from(list(AutoShutdown)))
def test_any_mapping_gives_a_good_spec_or_names_the_keys_at_fault(plain, mode):
    flags = Flags(auto_shutdown=mode)
    plain = good() | plain
    try:
        spec = read_spec(plain, "spec", flags)
    except ConfigError as refused:
        assert {path for path, _ in refused.problems} <= {f"spec.{key}" for key in plain}
        alone = {key: plain[key] for key in plain if f"spec.{key}" not in dict(refused.problems)}
        # Whether a child may be significant depends on its restart; with that named, it could not be judged.
        if "spec.restart" in dict(refused.problems):
            alone.pop("significant", None)
        # What was not named is good: without what was named, all is well.
        assert read_spec(good() | alone, "spec", flags)
    else:
        assert attrs.evolve(spec) == spec
        assert spec.restart in Restart and spec.mailbox >= 1
        assert not spec.significant or (spec.restart is not Restart.permanent and mode is not AutoShutdown.never)


# ── warnings ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("grace", "intensity", "period", "warned"),
    [
        (5.0, 1, 5.0, True),
        (4.5, 1, 5.0, False),
        (2.5, 2, 5.0, True),
        (2.0, 2, 5.0, False),
        (math.inf, 1, 5.0, True),
        (BRUTAL, 1, 5.0, False),
        (0.0, 5, 1.0, False),
        # Nothing can be too slow for a budget that is spent at once.
        (math.inf, 0, 5.0, False),
        (1.0, 10**400, 5.0, True),
    ],
)
def test_L15_a_child_that_may_never_exhaust_the_budget_is_warned_of(grace, intensity, period, warned):
    found = warnings_of(ChildSpec("db", start, grace=grace), Flags(intensity=intensity, period=period))
    assert [text.startswith("child 'db': stopping may take so long that the supervisor's budget never") for text in found] == [True] * warned


def test_L15_the_warning_names_the_figures_and_the_remedy():
    assert warnings_of(ChildSpec("db", start, grace=3.0), Flags(intensity=2)) == (
        "child 'db': stopping may take so long that the supervisor's budget never runs out and the child is restarted for ever: "
        "grace 3 s is not below 5 s / 2; lower grace or the intensity, or make the period longer",
    )


def test_L15_a_backoff_that_is_too_slow_is_warned_of_for_either_budget():
    flags = Flags(intensity=10, period=60.0, backoff=Backoff(2.0, 4.0))
    quick = ChildSpec("db", start, grace=1.0)
    assert warnings_of(quick, flags) == ()
    found = warnings_of(attrs.evolve(quick, budget=Budget(2, 4.0)), flags)
    assert len(found) == 1 and "waiting may take so long that its own budget never" in found[0]
    found = warnings_of(quick, attrs.evolve(flags, backoff=Backoff(6.0, 8.0)))
    assert len(found) == 1 and "backoff.minimum 6 s is not below 60 s / 10" in found[0]


def test_L15_a_temporary_child_is_never_restarted_and_never_warned_of():
    assert warnings_of(ChildSpec("db", start, restart=Restart.temporary, grace=math.inf), Flags()) == ()
