"""Whether a command may run: the program, the whole of it, and what it runs besides itself. Pure.

`exec`, the tools of the shell and the check of a criterion all ask here, so one
command has one verdict.

What would be got wrong:

- A rule sees the arguments, quoted as a shell would need them, and never the
  text that a model wrote: no blank or operator inside an argument can look like
  the end of one.
- A rule that allows much was not written with ``env`` or ``python -c`` in mind. So
  a broad allow of a program that runs others becomes an ask. A rule that spells
  the wrapped command out (``timeout 60 pytest*``) is meant, and counts.
- A deny is looked for in what runs inside as well, and under the last part of a
  program's path: ``env /bin/rm x`` is denied where ``rm`` is. Looked at in more
  ways, a command can only get less.
- Where nothing of `exec` is denied or asked for, nothing can be smuggled past a
  rule: a policy that allows all by default, without such a rule, asks for nothing.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

import attrs

from actors.agents.entry_text import bounded, clean
from actors.agents.globs import GlobSet
from actors.agents.inner_commands import Argv, Wrapping
from actors.agents.platform_names import HERE, Platform
from actors.agents.policy import RISKY_LAYER, Decision, Effect, Layer, stricter
from actors.agents.ports import Act
from actors.agents.risky_programs import wrapping_of

# Deeper in each other than anybody means them.
MOST_NESTED: Final = 6
# What is found inside of one command is looked at so many times; guesses in guesses would multiply.
MOST_INNER: Final = 400


class Explains(Protocol):
    """What judges an act: a policy, or one in which something is remembered."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Give the rules."""
        ...

    def explain(self, act: Act, target: str) -> Decision:
        """Decide about one act."""
        ...


@attrs.frozen
class Judged:
    """One way to see a command, and what the policy says about it."""

    target: str
    decision: Decision


def judge_command(policy: Explains, argv: Sequence[str]) -> tuple[Judged, ...]:
    """Judge one command: each way to see it, the program first. It may run only where all of them are allowed."""
    return _judge(policy, tuple(argv), 0, iter(range(MOST_INNER)))


def effect_of(judged: Sequence[Judged]) -> Effect:
    """Give the strictest effect of several judgements."""
    effect = Effect.allow
    for each in judged:
        effect = stricter(effect, each.decision.effect)
    return effect


def may_run(policy: Explains, argv: Sequence[str]) -> bool:
    """Tell whether a command is allowed outright; ask counts as no."""
    return effect_of(judge_command(policy, argv)) is Effect.allow


def _judge(policy: Explains, argv: Argv, depth: int, left: Iterator[int]) -> tuple[Judged, ...]:
    # A rule may name the program or the whole line; whoever is asked sees the line.
    line = shlex.join(argv)
    seen = [Judged(target, policy.explain(Act.exec, target)) for target in dict.fromkeys((argv[0], line))]
    seen += _by_name(policy, argv)
    wrapping = wrapping_of(argv)
    if wrapping is None:
        return tuple(seen)
    if depth >= MOST_NESTED:
        wrapping = attrs.evolve(wrapping, inner=(), guessed=(), opaque=True)
    spelled = _is_spelled_out(policy, argv, line, wrapping)
    for place, inner in enumerate((*wrapping.inner, *wrapping.guessed)):
        if next(left, None) is None:
            wrapping = attrs.evolve(wrapping, opaque=True)
            break
        judged = _judge(policy, inner, depth + 1, left)
        seen += _of_inner(judged, spelled=spelled, is_guess=place >= len(wrapping.inner))
    if not spelled and effect_of(seen) is Effect.allow and _asks(policy, line, wrapping):
        why = clean(f"{bounded(argv[0], 80)} {wrapping.why}")
        seen.append(Judged(line, Decision(Effect.ask, why, RISKY_LAYER)))
    return tuple(seen)


def _by_name(policy: Explains, argv: Argv) -> Iterator[Judged]:
    """Look whether a rule forbids, or asks for, a program by its name that is called by its path."""
    path = argv[0].replace("\\", "/") if HERE is Platform.windows else argv[0]
    name = path.rpartition("/")[2]
    if name == argv[0] or not name:
        return
    for target in dict.fromkeys((name, shlex.join((name, *argv[1:])))):
        decision = policy.explain(Act.exec, target)
        if decision.layer is not None and decision.effect is not Effect.allow:
            yield Judged(target, decision)


def _of_inner(judged: Sequence[Judged], *, spelled: bool, is_guess: bool) -> Iterator[Judged]:
    """Take what counts of a command inside another one: all, or only rules where the outer one is meant as it is.

    Of a guess only what a rule closes: it may be no command at all.
    """
    for each in judged:
        by_rule = each.decision.layer is not None and each.decision.layer != RISKY_LAYER
        closes = by_rule and each.decision.effect is not Effect.allow
        if closes if is_guess else (by_rule or not spelled):
            yield each


def _asks(policy: Explains, line: str, wrapping: Wrapping) -> bool:
    """Tell whether an allowed command of the class needs somebody to say yes."""
    if policy.explain(Act.exec, line).layer is not None:
        # A rule that was written for more than this.
        return True
    return wrapping.opaque and _holds_back(policy)


def _holds_back(policy: Explains) -> bool:
    """Tell whether any rule denies or asks for a command, which an opaque one could hide."""
    rules = (rule for layer in policy.layers for rule in layer.rules)
    return any(rule.act is Act.exec and rule.effect is not Effect.allow for rule in rules)


def _is_spelled_out(policy: Explains, argv: Argv, line: str, wrapping: Wrapping) -> bool:
    """Tell whether a rule allows this and names, without a wildcard, all that makes it what it is."""
    head = shlex.join(argv[: wrapping.named])
    return any(
        _literal(rule.glob).startswith(head) and GlobSet((rule.glob,)).first((line,)) is not None
        for layer in policy.layers
        if not layer.narrows
        for rule in layer.rules
        if rule.act is Act.exec and rule.effect is Effect.allow
    )


@lru_cache(maxsize=4_096)
def _literal(glob: str) -> str:
    """Give what stands before the first wildcard."""
    return re.split(r"[*?]", glob, maxsplit=1)[0]
