"""What a model is told first."""

from actors.agents.prompt import Framing, first_turn, system_text


def test_equal_framings_give_equal_bytes_in_one_order() -> None:
    framing = Framing("ROLE", tree=True, constraints=("keep the tests", "use no network"))
    text = system_text(framing)
    assert text == system_text(Framing("ROLE", tree=True, constraints=("keep the tests", "use no network")))
    places = [text.index(part) for part in ("ROLE", "workspace", "spawn_agent", "Constraints:", "call no tool")]
    assert places == sorted(places)
    assert "- keep the tests\n- use no network" in text


def test_only_a_tree_hears_of_sub_agents() -> None:
    assert "spawn_agent" not in system_text(Framing())
    assert "one file" in system_text(Framing(single_file=True))


def test_the_first_turn_names_the_criterion_if_there_is_one() -> None:
    assert first_turn("do it", "").text == "do it"
    assert first_turn("do it", "a.txt contains x").text.endswith("done when: a.txt contains x")
