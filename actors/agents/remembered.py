"""Rules that a yes brought along: what they match is not asked about again, in the whole tree. Pure.

They stand above no deny. The policy of the agent that acts (with all that its
parents, its definition and its spawn added) is asked first, and only what it says
ask about can be answered here: so with whatever is remembered no deny, and no
default of deny, of anybody becomes an allow.

What would be got wrong:

- A glob that is malformed is refused when the rule is made. In an approver that
  is an approver which raised: the act is denied, and nothing is remembered.
- A command is judged as if the rule had been written in the policy. So a broad one
  (``python*``) does not open what a program runs inside; it must be spelled out.
- What was stored is read again by whoever goes on. A text that cannot be read
  grants nothing: it is asked again.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import attrs

from actors.agents.exec_judging import Judged, effect_of, judge_command
from actors.agents.policy import MOST_RULE_CHARACTERS, RISKY_LAYER, Decision, Defaults, Effect, Layer, Policy, Rule
from actors.agents.ports import Act

LAYER: Final = "remembered"
# Both keep what is looked through for each act of a tree small, whoever approves.
MOST_REMEMBERED: Final = 256
MOST_CHARACTERS: Final = MOST_RULE_CHARACTERS


def _checked(remembered: "Remembered", _field: object, glob: str) -> None:
    # The one judge of rules: it says what is wrong with this one.
    Rule(remembered.act, Effect.allow, glob)
    if any("\ud800" <= letter <= "\udfff" for letter in glob):
        raise ValueError(f"rule {glob!r} holds half a character, which can be neither stored nor matched; remove it")


@attrs.frozen
class Remembered:
    """From now on, for the rest of the run and in the whole tree, ``act`` is allowed for what fits ``glob``.

    Raises:
        ValueError: the glob is malformed, or there is no such act.
    """

    act: Act = attrs.field(converter=Act)
    glob: str = attrs.field(validator=_checked)


_NOTHING: Final = Policy(defaults=Defaults(*(Effect.deny for _ in Act)))


@attrs.frozen
class Memory:
    """What is remembered in one tree, oldest first. Frozen; `adding` returns a larger one."""

    rules: tuple[Remembered, ...] = ()

    def adding(self, more: Iterable[Remembered]) -> tuple["Memory", tuple[Remembered, ...]]:
        """Remember more, each once, as far as there is room; give also what was left out."""
        kept, left = list(self.rules), []
        size = sum(len(rule.glob) for rule in kept)
        for rule in more:
            if rule in kept:
                continue
            if len(kept) >= MOST_REMEMBERED or size + len(rule.glob) > MOST_CHARACTERS:
                left.append(rule)
                continue
            kept.append(rule)
            size += len(rule.glob)
        return (self if len(kept) == len(self.rules) else Memory(tuple(kept))), tuple(left)

    @cached_property
    def _allows(self) -> Policy:
        """Give a policy that allows what is remembered and nothing else: rules are matched there, and only there."""
        layer = Layer(LAYER, tuple(Rule(rule.act, Effect.allow, rule.glob) for rule in self.rules))
        return Policy((layer,), _NOTHING.defaults)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Give what is remembered as layers of a policy."""
        return self._allows.layers if self.rules else ()

    def match(self, act: Act, target: str) -> Decision | None:
        """Give the rule that fits an act; None when none does. The policy must have said ask about it."""
        if not self.rules:
            return None
        decision = self._allows.explain(act, target)
        return decision if decision.effect is Effect.allow else None

    def covers(self, act: Act, judged: Sequence[Judged]) -> Decision | None:
        """Give the rule that fits the last of what was asked about, if each of it is fitted by one."""
        found = None
        for each in judged:
            if each.decision.effect is Effect.deny:
                return None
            if each.decision.effect is Effect.ask:
                found = self.match(act, each.target)
                if found is None:
                    return None
        return found

    def covers_commands(
        self, policy: Policy, commands: Iterable[tuple[Sequence[str], Sequence[Judged]]]
    ) -> Decision | None:
        """Give a rule for the last of several commands that ask, if there is one for each; see `covers_command`."""
        found = None
        for argv, judged in commands:
            if effect_of(judged) is Effect.allow:
                continue
            found = self.covers_command(policy, argv, judged)
            if found is None:
                return None
        return found

    def covers_command(self, policy: Policy, argv: Sequence[str], judged: Sequence[Judged]) -> Decision | None:
        """Give a rule for a command that asks, if nothing of it would ask were all that is remembered in the policy.

        ``judged`` is what `judge_command` says of it under ``policy`` alone: a deny in it stays one.
        """
        if not self.rules or effect_of(judged) is not Effect.ask:
            return None
        again = judge_command(_Opened(policy, self), argv)
        if effect_of(again) is not Effect.allow:
            return None
        plain = [each for each in judged if each.decision.layer != RISKY_LAYER]
        # A program that asks only because of what it may hide is opened by the rule that spells it out.
        asked = [each for each in plain if each.decision.effect is Effect.ask]
        return self.covers(Act.exec, asked) if asked else self.match(Act.exec, judged[-1].target)


@attrs.frozen
class _Opened:
    """A policy in which the asks that a remembered rule fits are allows. Only for what has no deny."""

    policy: Policy
    memory: Memory

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (*self.policy.layers, *self.memory.layers)

    def explain(self, act: Act, target: str) -> Decision:
        decision = self.policy.explain(act, target)
        if decision.effect is not Effect.ask:
            return decision
        return self.memory.match(act, target) or decision


def uncovered(
    rules: Iterable[Remembered], act: Act, target: str, commands: Sequence[Sequence[str]], policy: Policy
) -> list[str]:
    """Name what of an act would be asked about again were these rules remembered; empty when they cover it.

    ``commands`` are those of an act of running; without them the target stands for all.
    """
    memory, _ = Memory().adding(rules)
    if act is not Act.exec or not commands:
        return [] if memory.match(act, target) is not None else [target]
    left: list[str] = []
    for argv in commands:
        judged = judge_command(policy, argv)
        if effect_of(judged) is Effect.ask and memory.covers_command(policy, argv, judged) is None:
            plain = [each for each in judged if each.decision.effect is Effect.ask]
            open_still = [each.target for each in plain if memory.match(act, each.target) is None]
            left += open_still or [judged[-1].target]
    return list(dict.fromkeys(left))


# ── stored form ─────────────────────────────────────────────────────────────


def to_text(rules: Sequence[Remembered]) -> str | None:
    """Write rules as they are stored with a decision; None for none.

    Raises:
        TypeError: something else is among them.
    """
    for rule in rules:
        if not isinstance(rule, Remembered):
            raise TypeError(f"what is to be remembered is a Remembered(act, glob), not {type(rule).__name__}")
    plain = [{"act": rule.act.value, "glob": rule.glob} for rule in rules]
    return json.dumps(plain) if plain else None


def from_text(text: str | None) -> tuple[Remembered, ...]:
    """Read what was stored with a decision.

    Raises:
        ValueError, TypeError, RecursionError: it cannot be read; nothing of it may count then.
    """
    if text is None:
        return ()
    plain = json.loads(text)
    if not isinstance(plain, list) or not all(map(_is_rule, plain)):
        raise ValueError("what is remembered is a list of tables with act and glob")
    return tuple(Remembered(each["act"], each["glob"]) for each in plain)


def _is_rule(plain: object) -> bool:
    return isinstance(plain, dict) and set(plain) == {"act", "glob"}


def restored(texts: Iterable[str | None], say: Callable[[str], None]) -> Memory:
    """Give what the decisions of a tree made it remember, in their order; ``say`` hears what is left out."""
    memory = Memory()
    for text in texts:
        memory = after(memory, text, say)
    return memory


def after(memory: Memory, text: str | None, say: Callable[[str], None]) -> Memory:
    """Give what is remembered once one more decision stands; ``say`` hears what is left out, and why."""
    try:
        rules = from_text(text)
    except (ValueError, TypeError, RecursionError) as error:
        say(f"what a decision wants remembered cannot be read, so it is asked again: {error}")
        return memory
    kept, left = memory.adding(rules)
    if left:
        say(f"{left_out(left)}; a run remembers at most {MOST_REMEMBERED} rules of {MOST_CHARACTERS} characters")
    return kept


def left_out(left: Sequence[Remembered]) -> str:
    """Name rules that there was no room for."""
    first = ", ".join(f"{rule.act} {rule.glob!r:.80}" for rule in left[:3])
    more = len(left) - 3
    return f"not remembered, and asked again: {first}" + (f" and {more} more" if more > 0 else "")
