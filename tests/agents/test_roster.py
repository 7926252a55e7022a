"""Named agents only narrow, are found by exactly their name, and are read strictly."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.roster import CATALOGUE_CHARACTERS, MOST_ROLE, AgentDef, Agents
from actors.errors import ConfigError

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,6}", fullmatch=True)
DEFINITIONS = st.builds(
    AgentDef,
    NAMES,
    role=st.text(alphabet="ab \n", max_size=5),
    model=st.none() | st.sampled_from(["cheap", "strong"]),
    max_steps=st.none() | st.integers(1, 5),
    effort=st.none() | st.sampled_from(["low", "high"]),
    deny_write=st.booleans(),
    deny_net=st.booleans(),
    worktree=st.booleans(),
)
SEARCHER = AgentDef("searcher").with_role("You only read.").with_model("cheap").with_deny_write()
AUTHOR = AgentDef("author").with_model("strong")


def test_a_roster_of_two_knows_who_may_not_write():
    agents = Agents().with_agent(SEARCHER).with_agent(AUTHOR)
    assert len(agents) == 2
    assert agents.get("searcher").deny_write is True
    assert agents.get("author").deny_write is False
    assert agents.names == ("author", "searcher")
    assert list(agents) == [AUTHOR, SEARCHER]


def test_every_builder_sets_its_own_field_and_leaves_the_rest():
    plain = AgentDef("a")
    assert plain == AgentDef("a", "", None, None, None, False, False, False)
    built = {
        "role": plain.with_role("r"),
        "model": plain.with_model("m"),
        "max_steps": plain.with_max_steps(2),
        "effort": plain.with_effort("low"),
        "deny_write": plain.with_deny_write(),
        "deny_net": plain.with_deny_net(),
        "worktree": plain.with_worktree(),
        "tools": plain.with_tools("grep", "find"),
        "description": plain.with_description("d"),
    }
    set_by = {field: definition.to_dict() for field, definition in built.items()}
    assert set_by == {
        "role": {"role": "r"},
        "model": {"model": "m"},
        "max_steps": {"max_steps": 2},
        "effort": {"effort": "low"},
        "deny_write": {"deny_write": True},
        "deny_net": {"deny_net": True},
        "worktree": {"worktree": True},
        "tools": {"tools": ["grep", "find"]},
        "description": {"description": "d"},
    }
    assert set(built) == {field.name for field in attrs.fields(AgentDef)} - {"name"}


def test_a_definition_has_nothing_that_allows():
    assert not [name for name in dir(AgentDef) if "allow" in name]
    assert not [field.name for field in attrs.fields(AgentDef) if "allow" in field.name]


def test_names_are_case_sensitive():
    assert Agents().with_agent(SEARCHER).get("Searcher") is None


def test_registering_a_name_again_replaces_it():
    agents = Agents().with_agent(SEARCHER).with_agent(AgentDef("searcher"))
    assert agents == Agents((AgentDef("searcher"),))


@given(st.lists(DEFINITIONS, max_size=5))
def test_a_roster_is_sorted_and_keeps_the_last_of_each_name(definitions):
    agents = Agents()
    for definition in definitions:
        agents = agents.with_agent(definition)
    assert {one.name: one for one in agents} == {one.name: one for one in definitions}
    assert list(agents.names) == sorted(agents.names)
    assert agents == Agents(tuple(definitions))


@given(st.lists(DEFINITIONS, max_size=4))
def test_the_plain_form_gives_the_same_roster_back(definitions):
    agents = Agents(tuple(definitions))
    assert Agents.from_dict(agents.to_dict()) == agents


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "ä", "a/b", "a\n", "../x", None, 3])
def test_a_name_is_letters_digits_dash_and_underline(name):
    with pytest.raises(ValueError, match="1 to 64 letters"):
        AgentDef(name)
    with pytest.raises(ConfigError, match="1 to 64 letters"):
        Agents.from_dict({name: {}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("role", 3),
        ("role", "x" * (MOST_ROLE + 1)),
        ("role", "\ud800"),
        ("role", "a\0b"),
        ("model", ""),
        ("model", " "),
        ("model", "a\nb"),
        ("model", 3),
        ("effort", ""),
        ("effort", "x" * 201),
        ("max_steps", 0),
        ("max_steps", -1),
        ("max_steps", True),
        ("max_steps", 2.0),
        ("max_steps", "2"),
        ("max_steps", 10**9),
        ("deny_write", 1),
        ("deny_write", ["*"]),
        ("deny_net", "true"),
        ("worktree", 0),
    ],
)
def test_a_field_that_cannot_be_used_is_named(field, value):
    with pytest.raises(ValueError, match=f"^{field} of an agent "):
        AgentDef("a", **{field: value})
    with pytest.raises(ConfigError) as refused:
        AgentDef.from_dict("a", {field: value}, "agents.a")
    assert [path for path, _text in refused.value.problems] == [f"agents.a.{field}"]


def test_all_problems_of_a_file_are_told_at_once_with_their_paths():
    plain = {
        "searcher": {"model": "cheap", "deny_writes": True, "max_steps": True},
        "author": {"allow_write": ["*"], "role": None},
        "bad name": {},
        "list": [],
    }
    with pytest.raises(ConfigError) as refused:
        Agents.from_dict(plain)
    problems = dict(refused.value.problems)
    assert sorted(problems) == [
        "agents.author.allow_write",
        "agents.author.role",
        "agents.bad name",
        "agents.list",
        "agents.searcher.deny_writes",
        "agents.searcher.max_steps",
    ]
    assert "only narrow" in problems["agents.author.allow_write"]
    assert "null" in problems["agents.author.role"]


@pytest.mark.parametrize("plain", [None, [], "x", 3])
def test_what_is_no_table_is_refused(plain):
    with pytest.raises(ConfigError, match=r"task\.agents: must be a table"):
        Agents.from_dict(plain, at="task.agents")
    with pytest.raises(ConfigError, match="must be a table"):
        AgentDef.from_dict("a", plain, "agents.a")


def test_the_catalogue_lists_names_roles_and_what_each_may_not():
    agents = Agents((AUTHOR, SEARCHER, AgentDef("web").with_deny_net().with_max_steps(3)))
    assert agents.catalogue() == (
        "- author\n- searcher: You only read. (may not write)\n- web (may not use the net, at most 3 steps)"
    )
    assert Agents().catalogue() == ""


def test_a_long_role_takes_one_short_line_of_the_catalogue():
    line = Agents((AgentDef("a").with_role("many\nwords " * 1_000),)).catalogue()
    assert "\n" not in line
    assert len(line) <= CATALOGUE_CHARACTERS + len("- a: ")
    assert line.endswith("...")
