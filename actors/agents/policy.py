"""What the agents of a tree may touch: layers of rules, and a default for each act. Pure.

What would be got wrong:

- Order and specificity decide nothing. Any deny of any layer wins, else any
  ask, else any allow, else the default for the act. The order only says which
  rule is named.
- A child's policy comes from `Policy.contain` and from nothing else: its allows
  are dropped, so no child can be given what its parent has not. Its asks are
  marked as narrowing: an ask of the operator opens what is denied by default, an
  ask of a child must not.
- A malformed rule is refused when it is made. One that was kept and matched
  nothing would be a deny that fails open.
- Only paths are also matched by their last part: programs and hosts are taken as
  they are written. A whole command (its path, and what it runs inside) is judged
  in `exec_judging.py`, which asks here several times.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, TypeVar

import attrs

from actors.agents.globs import MOST_CHARACTERS, MOST_TREES, GlobSet, glob_problem
from actors.agents.ports import Act
from actors.agents.rule_globs import SPELLINGS, rule_glob_problem
from actors.errors import ConfigError, kind_word

# Both bound what a model can make a decision cost: it may add denies for its children.
MOST_RULES: Final = 1_000
MOST_RULE_CHARACTERS: Final = 32_768
MOST_NAME: Final = 200
LIMITS_LAYER: Final = "limits"
RISKY_LAYER: Final = "risky-programs"
_NO_LAYERS: Final = (LIMITS_LAYER, RISKY_LAYER)
# Stored policies hold layers of these names; a file of the operator's may not.
_OURS: Final = ("builtin", "child", "provider", "remembered")
NOT_ASCII: Final = "<host that is not in its ASCII form>"
TOO_LONG: Final = f"<target over {MOST_CHARACTERS} characters>"
TOO_DEEP: Final = f"<target in over {MOST_TREES} work trees>"


class Effect(StrEnum):
    """What a rule says about an act; stored values."""

    allow = "allow"
    ask = "ask"
    deny = "deny"


_FROM_MILD: Final = (Effect.allow, Effect.ask, Effect.deny)
_FROM_STRICT: Final = (Effect.deny, Effect.ask, Effect.allow)


def stricter(one: Effect, other: Effect) -> Effect:
    """Give the one of two effects that lets less through."""
    return max(one, other, key=_FROM_MILD.index)


@attrs.frozen
class Decision:
    """What the policy says about one act. ``rule`` and ``layer`` are None when the default decided."""

    effect: Effect
    rule: str | None = None
    layer: str | None = None


# What a default decides, made once: most acts of most runs come to no more.
_BY_DEFAULT: Final = {effect: Decision(effect) for effect in Effect}


def _shown(text: object) -> str:
    whole = repr(text)
    return whole if len(whole) <= 80 else whole[:77] + "..."


@attrs.frozen
class Rule:
    """One rule: what it is about, what it says, and for which targets.

    Raises:
        ValueError: the glob is malformed, or no such act or effect exists.
    """

    act: Act = attrs.field(converter=Act)
    effect: Effect = attrs.field(converter=Effect)
    glob: str

    def __attrs_post_init__(self) -> None:
        problem = rule_glob_problem(self.act, self.glob)
        if problem:
            raise ValueError(f"rule {self.effect} {self.act} {_shown(self.glob)} {problem}")


_Table = dict[tuple[Act, Effect], tuple[GlobSet, tuple[str, ...]]]


@attrs.frozen
class Layer:
    """Rules under one name, which refusals carry. The same name may stand in several layers.

    A layer that ``narrows`` came from a child: it holds no allow, and its asks
    tighten what another rule or the default gives and never open what it denies.

    Raises:
        ValueError: the name is unusable, the layer is too large, or it narrows and allows.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    narrows: bool = False

    def __attrs_post_init__(self) -> None:
        problem = _layer_problem(self.name, self.rules, self.narrows)
        if problem:
            raise ValueError(f"layer {_shown(self.name)} {problem}")

    # Kept on the layer because contained policies share their parent's layers: a child compiles only what it adds.
    @cached_property
    def _table(self) -> _Table:
        written: dict[tuple[Act, Effect], list[str]] = {}
        for rule in self.rules:
            written.setdefault((rule.act, rule.effect), []).append(rule.glob)
        return {
            key: (GlobSet(tuple(map(SPELLINGS[key[0]].glob, globs))), tuple(globs)) for key, globs in written.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form; ``narrows`` stands in it only where it is true."""
        rules = [{"act": rule.act.value, "effect": rule.effect.value, "glob": rule.glob} for rule in self.rules]
        return {"name": self.name, "rules": rules, **({"narrows": True} if self.narrows else {})}

    def first(self, act: Act, effect: Effect, names: tuple[str, ...]) -> str | None:
        """Give the glob of the first rule of this effect that fits, as it was written."""
        entry = self._table.get((act, effect))
        if entry is None:
            return None
        globs, written = entry
        place = globs.first(names)
        return None if place is None else written[place]


def _layer_problem(name: object, rules: Iterable[Rule], narrows: bool) -> str | None:
    problem = _name_problem(name)
    if problem:
        return problem
    if narrows and any(rule.effect is Effect.allow for rule in rules):
        return "narrows, so it can hold no allow; remove the allow, or narrows"
    sizes = [len(rule.glob) for rule in rules]
    if len(sizes) > MOST_RULES:
        return f"has {len(sizes)} rules; keep at most {MOST_RULES}, or use a second layer"
    if sum(sizes) > MOST_RULE_CHARACTERS:
        return f"has {sum(sizes)} characters of globs; keep at most {MOST_RULE_CHARACTERS}, or use a second layer"
    return None


def _name_problem(name: object) -> str | None:
    if not isinstance(name, str):
        return f"must have a text as its name, not {type(name).__name__}"
    if not name.strip() or len(name) > MOST_NAME or not name.isprintable():
        return f"must have a name of 1 to {MOST_NAME} printable characters"
    return "needs another name; decisions that stand in no file carry that name" if name in _NO_LAYERS else None


@attrs.frozen
class Defaults:
    """What holds for an act where no rule fits. What is not given is as here, also in a file."""

    read: Effect = attrs.field(default=Effect.allow, converter=Effect)
    write: Effect = attrs.field(default=Effect.ask, converter=Effect)
    exec: Effect = attrs.field(default=Effect.ask, converter=Effect)
    # Files of before there was this act lack it, and meant no permission.
    net: Effect = attrs.field(default=Effect.deny, converter=Effect)
    spawn: Effect = attrs.field(default=Effect.allow, converter=Effect)

    def of(self, act: Act) -> Effect:
        """Give the default of one act."""
        effect: Effect = getattr(self, act)
        return effect

    def stricter(self, other: "Defaults") -> "Defaults":
        """Take the stricter effect of the two for each act."""
        return Defaults(**{act.value: stricter(self.of(act), other.of(act)) for act in Act})


@attrs.frozen
class Policy:
    """A stack of layers and the defaults. Frozen, compared by value; every builder returns a changed copy.

    Example::

        policy = Policy.default().layer("operator").allow_write("src/*").deny_read("secrets/*")
        policy.explain(Act.read, "secrets/a")     # deny, rule "secrets/*" of layer "operator"
    """

    layers: tuple[Layer, ...] = ()
    defaults: Defaults = attrs.field(factory=Defaults)
    # Whether the last layer takes rules: only one that `layer` opened does, so no rule lands in a built-in one.
    _open: bool = attrs.field(default=False, kw_only=True, eq=False, repr=False)

    @classmethod
    def default(cls) -> "Policy":
        """Give the policy of those who said nothing: read, ask before writing or running, no net, no secrets, no store.

        The command that the operator wrote as the criterion needs no rule: it is
        run without asking this policy.
        """
        return cls((_BUILTIN,))

    @classmethod
    def permissive(cls) -> "Policy":
        """Give the policy without rules that allows everything."""
        return _PERMISSIVE

    @property
    def is_permissive(self) -> bool:
        """Whether there is no rule and every default is allow."""
        return self.defaults == _PERMISSIVE.defaults and not self._has_rules

    @cached_property
    def _has_rules(self) -> bool:
        return any(layer.rules for layer in self.layers)

    # ── decisions ───────────────────────────────────────────────────────────

    def explain(self, act: Act, target: str) -> Decision:
        """Decide about one act, and say which rule of which layer decided.

        ``target`` is a resolved path relative to the root (or an absolute one), a
        program or a joined command line, ``host:port``, or the name of an agent.
        One of over 4,096 characters, or a host that is not in ASCII, is denied by a rule that stands in no file;
        where a rule closes anything for the act, so is a path in over eight work trees that lie in each other.
        """
        if act.__class__ is not Act:
            act = Act(act)
        if len(target) > MOST_CHARACTERS:
            return Decision(Effect.deny, TOO_LONG, LIMITS_LAYER)
        if act is Act.net and not target.isascii():
            # Libraries make a name of it that no rule was held against, and not all of them the same.
            return Decision(Effect.deny, NOT_ASCII, LIMITS_LAYER)
        default = self.defaults.of(act)
        if not self._has_rules:
            return _BY_DEFAULT[default]
        spelling = SPELLINGS[act]
        names = spelling.names(target)
        closing = names if spelling.closed_by is None else spelling.closed_by(target)
        if closing is None:
            if self._closes_some(act):
                return Decision(Effect.deny, TOO_DEEP, LIMITS_LAYER)
            closing = names
        for effect in _FROM_STRICT:
            decision = self._first(act, effect, names if effect is Effect.allow else closing)
            if decision is None:
                continue
            if effect is Effect.ask and default is Effect.deny and not self._is_opened(act, names):
                break
            return decision
        return _BY_DEFAULT[default]

    def _first(self, act: Act, effect: Effect, names: tuple[str, ...]) -> Decision | None:
        for layer in self.layers:
            rule = layer.first(act, effect, names)
            if rule is not None:
                return Decision(effect, rule, layer.name)
        return None

    def _closes_some(self, act: Act) -> bool:
        return any((act, effect) in layer._table for layer in self.layers for effect in (Effect.deny, Effect.ask))

    def _is_opened(self, act: Act, names: tuple[str, ...]) -> bool:
        """Tell whether a rule of somebody who may widen lets through what the default denies."""
        opening = (Effect.ask, Effect.allow)
        return any(layer.first(act, effect, names) for layer in self.layers if not layer.narrows for effect in opening)

    # One function under two names: what is checked is what is explained.
    check = explain

    # ── combining ───────────────────────────────────────────────────────────

    def merge(self, overlay: "Policy") -> "Policy":
        """Add the layers of another policy of the same author, allows too; the stricter defaults hold."""
        return Policy(self.layers + overlay.layers, self.defaults.stricter(overlay.defaults))

    def contain(self, child: "Policy") -> "Policy":
        """Give what a child gets that asks for ``child``: its denies and asks on top of this, never an allow.

        For every act and target the result is at least as strict as this policy,
        and as every deny and ask of the child's. A default of the child binds where
        no rule of this policy fits: the parent's own allows still hold for it.
        """
        added = [kept for layer in child.layers if (kept := self._narrowing(layer)) is not None]
        defaults = self.defaults.stricter(child.defaults)
        if not added and defaults == self.defaults:
            return self
        return Policy((*self.layers, *added), defaults)

    def _narrowing(self, layer: Layer) -> Layer | None:
        # What stands here already would never be named, and a deep tree would carry it once for each level.
        kept = tuple(rule for rule in layer.rules if rule.effect is not Effect.allow and rule not in self._known)
        if not kept:
            return None
        return Layer(layer.name, kept, narrows=True)

    @cached_property
    def _known(self) -> frozenset[Rule]:
        return frozenset(rule for layer in self.layers for rule in layer.rules)

    # ── builders ────────────────────────────────────────────────────────────

    def layer(self, name: str) -> "Policy":
        """Open a new layer on top; the rules that follow go into it.

        Raises:
            ConfigError: the name is empty, too long or not printable.
        """
        try:
            opened = Layer(name)
        except ValueError as error:
            raise ConfigError(("policy", str(error))) from None
        return Policy((*self.layers, opened), self.defaults, open=True)

    def _with(self, effect: Effect, act: Act, glob: str) -> "Policy":
        """Add one rule to the open layer.

        Raises:
            ConfigError: no layer is open, the glob is malformed, or the layer is full.
        """
        if not self._open or not self.layers:
            raise ConfigError(("policy", f"no layer is open for {effect}_{act}; call layer(name) first"))
        top = self.layers[-1]
        try:
            changed = Layer(top.name, (*top.rules, Rule(act, effect, glob)))
        except ValueError as error:
            raise ConfigError((f"policy layer {top.name!r}", str(error))) from None
        return Policy((*self.layers[:-1], changed), self.defaults, open=True)

    def allow_read(self, glob: str) -> "Policy":
        """Allow reading what fits; here and below, see `_with` for what is refused."""
        return self._with(Effect.allow, Act.read, glob)

    def allow_write(self, glob: str) -> "Policy":
        """Allow writing what fits."""
        return self._with(Effect.allow, Act.write, glob)

    def allow_exec(self, glob: str) -> "Policy":
        """Allow running what fits."""
        return self._with(Effect.allow, Act.exec, glob)

    def allow_net(self, glob: str) -> "Policy":
        """Allow connecting to what fits: a host, or ``host:port``."""
        return self._with(Effect.allow, Act.net, glob)

    def allow_spawn(self, glob: str) -> "Policy":
        """Allow spawning named agents that fit; ``agent`` stands for one without a name."""
        return self._with(Effect.allow, Act.spawn, glob)

    def ask_read(self, glob: str) -> "Policy":
        """Ask before reading what fits."""
        return self._with(Effect.ask, Act.read, glob)

    def ask_write(self, glob: str) -> "Policy":
        """Ask before writing what fits."""
        return self._with(Effect.ask, Act.write, glob)

    def ask_exec(self, glob: str) -> "Policy":
        """Ask before running what fits."""
        return self._with(Effect.ask, Act.exec, glob)

    def ask_net(self, glob: str) -> "Policy":
        """Ask before connecting to what fits."""
        return self._with(Effect.ask, Act.net, glob)

    def ask_spawn(self, glob: str) -> "Policy":
        """Ask before spawning named agents that fit."""
        return self._with(Effect.ask, Act.spawn, glob)

    def deny_read(self, glob: str) -> "Policy":
        """Deny reading what fits."""
        return self._with(Effect.deny, Act.read, glob)

    def deny_write(self, glob: str) -> "Policy":
        """Deny writing what fits."""
        return self._with(Effect.deny, Act.write, glob)

    def deny_exec(self, glob: str) -> "Policy":
        """Deny running what fits."""
        return self._with(Effect.deny, Act.exec, glob)

    def deny_net(self, glob: str) -> "Policy":
        """Deny connecting to what fits."""
        return self._with(Effect.deny, Act.net, glob)

    def deny_spawn(self, glob: str) -> "Policy":
        """Deny spawning named agents that fit."""
        return self._with(Effect.deny, Act.spawn, glob)

    # ── plain form ──────────────────────────────────────────────────────────

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form of files and JSON, with every default written out."""
        return {
            "defaults": {act.value: self.defaults.of(act).value for act in Act},
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def to_json(self) -> str:
        """Give the JSON form; the same value always gives the same text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, plain: object, at: str = "policy") -> "Policy":
        """Read the plain form strictly: exactly what is written, and no built-in layer.

        A default that is missing is allow for read and spawn, ask for write and
        exec, deny for net. ``pattern`` is read as ``glob``.

        Raises:
            ConfigError: every problem with the path of its key below ``at``.
        """
        return _read_policy(plain, at)

    @classmethod
    def from_json(cls, text: str, at: str = "policy") -> "Policy":
        """Read the JSON form strictly; a key that stands twice is refused.

        Raises:
            ConfigError: every problem with the path of its key.
        """
        try:
            plain = json.loads(text, object_pairs_hook=_no_repeats)
        except (ValueError, RecursionError) as error:
            raise ConfigError((at, f"is no JSON: {error}")) from None
        return _read_policy(plain, at)


_SECRETS: Final = (".env", "*.pem", "id_rsa", "id_ed25519", "*.key")
# Runs are kept there by default, with the policy and the contract that they are resumed under: who works may not write
# that, nor read what others were told.
_OWN: Final = (".actors", ".actors/*", "*/.actors/*")
_BUILTIN: Final = Layer(
    "builtin", tuple(Rule(act, Effect.deny, glob) for act in (Act.read, Act.write) for glob in (*_SECRETS, *_OWN))
)
_PERMISSIVE: Final = Policy(defaults=Defaults(*(Effect.allow for _ in Act)))


def operator_policy(plain: object, at: str = "policy") -> Policy:
    """Read the policy of a task file: the operator's defaults and layers, above the built-in layer.

    An empty table gives `Policy.default`. The built-in layer denies secrets, and
    no allow of the operator's can undo a deny.

    Raises:
        ConfigError: every problem with the path of its key below ``at``.
    """
    written = _read_policy(plain, at, operators=True)
    return Policy((_BUILTIN, *written.layers), written.defaults)


# ── reading ─────────────────────────────────────────────────────────────────


_Problems = list[tuple[str, str]]
_Word = TypeVar("_Word", bound=StrEnum)


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return seen


def _read_policy(plain: object, at: str, *, operators: bool = False) -> Policy:
    problems: _Problems = []
    table = _table(plain, at, ("defaults", "layers"), problems)
    defaults = _read_defaults(table.get("defaults", {}), f"{at}.defaults", problems)
    layers = [
        _read_layer(item, f"{at}.layers[{place}]", problems)
        for place, item in enumerate(_list(table.get("layers", []), f"{at}.layers", problems))
    ]
    if operators:
        problems += _taken_names(layers, at)
    if problems:
        raise ConfigError(*problems)
    return Policy(tuple(layer for layer in layers if layer is not None), defaults)


def _taken_names(layers: Iterable[Layer | None], at: str) -> _Problems:
    """Find layers that could not be told from another in a refusal."""
    problems: _Problems = []
    seen: dict[str, int] = {}
    for place, layer in enumerate(layers):
        if layer is None:
            continue
        if layer.name in _OURS:
            text = f"{layer.name!r} is the name of a layer of ours; write another"
        elif layer.name in seen:
            text = f"{layer.name!r} is the name of layers[{seen[layer.name]}] too; write another, or one layer of both"
        else:
            seen[layer.name] = place
            continue
        problems.append((f"{at}.layers[{place}].name", text))
    return problems


def _table(plain: object, at: str, keys: tuple[str, ...], problems: _Problems) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        problems.append((at, f"must be a table, not {kind_word(plain)}"))
        return {}
    for key in plain:
        if key not in keys:
            problems.append((f"{at}.{key}", f"unknown key; remove it, or write one of {', '.join(keys)}"))
    return plain


def _list(plain: object, at: str, problems: _Problems) -> list[Any]:
    if isinstance(plain, list | tuple):
        return list(plain)
    remedy = ""
    if isinstance(plain, Mapping):
        remedy = f"; write [[{at}]] above it" if "[" not in at else "; write [ ] around it"
    problems.append((at, f"must be a list, not {kind_word(plain)}{remedy}"))
    return []


def _read_defaults(plain: object, at: str, problems: _Problems) -> Defaults:
    table = _table(plain, at, tuple(Act), problems)
    read = {act: _word(table[act], Effect, f"{at}.{act}", problems) for act in Act if act in table}
    return Defaults(**{act.value: effect for act, effect in read.items() if effect is not None})


def _word(value: object, words: type[_Word], at: str, problems: _Problems) -> _Word | None:
    if isinstance(value, str) and value in tuple(words):
        return words(value)
    problems.append((at, f"must be one of {', '.join(words)}, not {_shown(value)}"))
    return None


def _read_layer(plain: object, at: str, problems: _Problems) -> Layer | None:
    table = _table(plain, at, ("name", "rules", "narrows"), problems)
    if not isinstance(plain, Mapping):
        return None
    name = table.get("name")
    problem = _name_problem(name)
    if problem:
        problems.append((f"{at}.name", problem))
    if "rules" not in table:
        problems.append((f"{at}.rules", "is required; write an empty list for a layer without rules"))
    rules = [
        _read_rule(item, name, f"{at}.rules[{place}]", problems)
        for place, item in enumerate(_list(table.get("rules", []), f"{at}.rules", problems))
    ]
    narrows = table.get("narrows", False)
    if type(narrows) is not bool:
        problems.append((f"{at}.narrows", f"must be true or false, not {_shown(narrows)}"))
    if problem:
        return None
    try:
        return Layer(str(name), tuple(rule for rule in rules if rule is not None), narrows is True)
    except ValueError as error:
        problems.append((f"{at}.rules", str(error)))
        return None


def _read_rule(plain: object, layer: object, at: str, problems: _Problems) -> Rule | None:
    table = _table(plain, at, ("act", "effect", "glob", "pattern"), problems)
    if not isinstance(plain, Mapping):
        return None
    for key in ("act", "effect"):
        if key not in table:
            problems.append((f"{at}.{key}", "is required"))
    act = _word(table["act"], Act, f"{at}.act", problems) if "act" in table else None
    effect = _word(table["effect"], Effect, f"{at}.effect", problems) if "effect" in table else None
    # Another system writes ``pattern``; its stored policies must go on to bind.
    key = "pattern" if "pattern" in table and "glob" not in table else "glob"
    if "pattern" in table and "glob" in table:
        problems.append((f"{at}.pattern", "is the same as glob; keep one of them"))
    if key not in table:
        problems.append((f"{at}.glob", "is required"))
        return None
    glob = table[key]
    problem = glob_problem(glob) if act is None else rule_glob_problem(act, glob)
    if problem:
        problems.append((f"{at}.{key}", f"rule {_shown(glob)} of layer {_shown(layer)} {problem}"))
    if problem or act is None or effect is None:
        return None
    return Rule(act, effect, glob)
