"""The place of a child's work tree is the same in every process, is no other child's, and is a name anywhere."""

import re

from hypothesis import given
from hypothesis import strategies as st

from actors.agents.worktrees import FOLDER, place_of

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
RUNS = st.from_regex(r"[a-z0-9]{10}(/[0-9]{1,3}\.[0-9]{1,3}){0,40}", fullmatch=True)
WHO = st.tuples(RUNS, st.integers(1, 99), st.integers(1, 9), st.text(max_size=9), NAMES)


@given(WHO)
def test_a_place_is_one_folder_with_a_safe_name_and_a_sound_branch(who):
    place = place_of(*who)
    assert place == place_of(*who)
    assert re.fullmatch(r"[a-z0-9][A-Za-z0-9-]*\.[A-Za-z0-9-]+", place.name) and len(place.name) <= 128
    assert place.path == f"{FOLDER}/{place.name}" and ".." not in place.branch and not place.branch.endswith(".lock")


@given(WHO, WHO)
def test_two_calls_have_two_places(one, other):
    # The name of the agent is for people: the same call cannot ask for two.
    assert (place_of(*one) == place_of(*other)) == (one[:4] == other[:4] and place_of(*one).name == place_of(*other).name)
    changed = (one[0], one[1], one[2] + 1, *one[3:])
    assert place_of(*changed) != place_of(*one)
    assert place_of(*one[:3], one[3] + "x", one[4]) != place_of(*one)
    assert place_of(one[0] + "/1.1", *one[1:]) != place_of(*one)
