"""The reward expression `0.2*format+em-0.01*searches`, and schedules of expressions.

Owns the grammar, its errors and the weighted sum. Knows component names only as strings: it never
runs a component and has no notion of time (a `RewardSchedule` picks the expression of a step).
The same strings serve `train`, `eval`, `score` and `check`; the scorer evaluates them.

    expression = ["+" | "-"] term { ("+" | "-") term }
    term       = number "*" name | name | number
    name       = identifier | distribution ":" identifier
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from pydantic import ValidationError

from searchrl.config.sections import RewardStage
from searchrl.errors import (
    ConfigError,
    ExpressionError,
    UnknownNameError,
    show_value,
    suggest,
)

_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_IDENTIFIER = r"[^\W\d]\w*"
_NAME = re.compile(_IDENTIFIER)
_WORD = re.compile(r"\w")
_QUALIFIED = re.compile(rf"\w[\w.-]*:{_IDENTIFIER}")
_WINDOW = 100
"""Characters of an expression that an error shows."""
_MAX_NAME = 60
"""Characters of a name or a number that an error shows."""
_SHAPE = (
    "An expression is a sum of weight*name terms without parentheses, such as "
    '"0.2*format+em-0.01*searches".'
)


_OTHER_WORDS = {
    **dict.fromkeys(("exact_match", "exact", "accuracy", "acc", "correct", "correctness"), "em"),
    **dict.fromkeys(("cover_exact_match", "contains", "substring"), "cover_em"),
    **dict.fromkeys(("retrieved", "recall"), "support_recall"),
}
"""What other tools call our components."""


class UnknownComponentError(ExpressionError, UnknownNameError):
    """An expression names a reward component that is not registered: `component`."""

    def __init__(self, message: str, component: str = "") -> None:
        super().__init__(message)
        self.component = component


@dataclass(frozen=True, slots=True)
class Expression:
    """A weighted sum of components plus a constant. Weights are as written, never normalised.

    A name occurs once in `terms`, in order of first appearance; weights of repeats are added.
    `str()` writes an expression that parses to an equal one.
    """

    terms: tuple[tuple[float, str], ...]
    constant: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        """The components it names, weight 0 included."""
        return tuple(name for _, name in self.terms)

    def evaluate(self, scores: Mapping[str, float], left_out: Container[str] = ()) -> float:
        """The reward without the terms of `left_out`, which say nothing about the task.

        A term of weight 0 is not read; KeyError if any other score is missing.
        """
        reward = self.constant
        for weight, name in self.terms:
            if weight and name not in left_out:
                reward += weight * scores[name]
        return reward

    def __str__(self) -> str:
        # "a-b:c" reads as one qualified name, so a minus beside such a name needs its spaces.
        gap = " " if any("-" in name for name in self.names) else ""
        pieces = [
            (weight, name if abs(weight) == 1.0 else f"{_number_text(weight)}*{name}")
            for weight, name in self.terms
        ]
        if self.constant:
            pieces.append((self.constant, _number_text(self.constant)))
        text = "".join(f"{gap}{'-' if value < 0 else '+'}{gap}{piece}" for value, piece in pieces)
        return text.strip().removeprefix("+").strip()


def _number_text(value: float) -> str:
    return repr(abs(value)).removesuffix(".0")


def parse_expression(text: str, known: Iterable[str] | None = None) -> Expression:
    """Read an expression; `known` are the registered component names (None: any name passes).

    Raises `ExpressionError` with a caret at the place, `UnknownComponentError` with near matches.
    """
    return _Parser(text, None if known is None else tuple(known)).parse()


class _Parser:
    """One left-to-right pass over `text`; `pos` is where the next piece begins."""

    def __init__(self, text: str, known: tuple[str, ...] | None) -> None:
        self.text = text
        self.known = known
        # Longest first: `pkg:em_zh` is tried before `pkg:em`.
        self.qualified = sorted((n for n in known or () if ":" in n), key=len, reverse=True)
        self.pos = 0

    def parse(self) -> Expression:
        weights: dict[str, float] = {}
        constant = 0.0
        sign = self._sign() or 1.0
        while True:
            start = self.pos
            number, name = self._term()
            if name is None:
                constant += sign * number
            else:
                weights[name] = weights.get(name, 0.0) + sign * number
            if not math.isfinite(constant if name is None else weights[name]):
                self._fail("the sum of the weights is not a finite number", start)
            self._skip_space()
            if self.pos == len(self.text):
                break
            next_sign = self._sign()
            if next_sign is None:
                self._fail_after_term(name is not None)
            sign = next_sign
        if not weights:
            self._fail("it names no reward component; a constant trains nothing", 0)
        return Expression(tuple((weight, name) for name, weight in weights.items()), constant)

    def _sign(self) -> float | None:
        self._skip_space()
        sign = {"+": 1.0, "-": -1.0}.get(self.text[self.pos : self.pos + 1])
        self.pos += sign is not None
        return sign

    def _term(self) -> tuple[float, str | None]:
        self._skip_space()
        if (name := self._name()) is not None:
            return 1.0, name
        start = self.pos
        match = _NUMBER.match(self.text, start)
        if match is None:
            self._fail(f"expected a component name or a number, found {self._found()}")
        number = float(match.group())
        self.pos = match.end()
        if not math.isfinite(number):
            self._fail(f"{_cut(match.group())} is not a finite number", start)
        self._skip_space()
        if self.text[self.pos : self.pos + 1] != "*":
            return number, None
        self.pos += 1
        self._skip_space()
        name = self._name()
        if name is None:
            self._fail(f"expected a component name after '*', found {self._found()}")
        return number, name

    def _name(self) -> str | None:
        start = self.pos
        name = self._known_qualified() or self._generic_name()
        if name is None:
            return None
        if self.known is not None and name not in self.known:
            # Show the whole qualified name that was meant, with its hyphens.
            longer = _QUALIFIED.match(self.text, start)
            name = longer.group() if longer else name
            hint = suggest(name[:_MAX_NAME], self.known)
            for meant in (_OTHER_WORDS.get(name.casefold()), name.partition(":")[2]):
                if meant in self.known:
                    hint = f" Did you mean '{meant}'?"
            kind = functools.partial(UnknownComponentError, component=name)
            self._fail(f"unknown reward component '{_cut(name)}'.{hint}", start, kind)
        self.pos = start + len(name)
        return name

    def _known_qualified(self) -> str | None:
        for name in self.qualified:
            end = self.pos + len(name)
            if self.text.startswith(name, self.pos) and not _WORD.match(self.text, end):
                return name
        return None

    def _generic_name(self) -> str | None:
        match = _NAME.match(self.text, self.pos)
        if match and self.known is None:
            # Without known names "a-b:c" is one qualified name. With known names, those were tried
            # before, so that "a" minus "b:c" may be meant.
            match = _QUALIFIED.match(self.text, self.pos) or match
        return match.group() if match else None

    def _skip_space(self) -> None:
        while self.text[self.pos : self.pos + 1].isspace():
            self.pos += 1

    def _found(self) -> str:
        return repr(self.text[self.pos]) if self.pos < len(self.text) else "the end"

    def _fail_after_term(self, was_name: bool) -> NoReturn:
        char = self.text[self.pos]
        if was_name and char == "*":
            self._fail("expected '+', '-' or the end, found '*' (the weight comes first: 2*em)")
        wanted = "'+', '-' or the end" if was_name else "'*', '+', '-' or the end"
        self._fail(f"expected {wanted}, found {self._found()}")

    def _fail(
        self,
        message: str,
        at: int | None = None,
        kind: Callable[[str], ExpressionError] = ExpressionError,
    ) -> NoReturn:
        place = self.pos if at is None else at
        # A long expression is shown around the place, so that the caret stays below it.
        begin = max(0, place - _WINDOW // 2)
        end = begin + _WINDOW
        before, after = "…" * (begin > 0), "…" * (end < len(self.text))
        shown = "".join(c if c.isprintable() else " " for c in self.text[begin:end])
        # Chinese characters take two columns in a terminal.
        indent = len(before) + sum(_columns(char) for char in shown[: place - begin])
        raise kind(
            f"reward expression, column {place + 1}: {message}\n"
            f"  {before}{shown}{after}\n"
            f"  {' ' * indent}^\n"
            f"{_SHAPE}"
        )


def _columns(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[:_MAX_NAME] + "…"


@dataclass(frozen=True, slots=True)
class RewardSchedule:
    """Which expression holds at which optimiser step. Made by `RewardSchedule.parse`.

    `ends` are the last steps of all expressions but the last, ascending; infinity: not known yet,
    because the next one waits for a condition. `waits` are these conditions, "" for none.
    """

    expressions: tuple[Expression, ...]
    ends: tuple[float, ...] = ()
    waits: tuple[str, ...] = ()

    @classmethod
    def parse(cls, spec: object, known: Iterable[str] | None = None) -> RewardSchedule:
        """Read the config value `reward`: an expression, or a list of stages.

        A stage is a `RewardStage` or a mapping `{until_step, expr, when}`. `until_step` is
        its last step and ascends; the last stage has none, and one before a stage with `when` needs
        none. What a condition means is known to whoever calls `begun`.

        Raises:
            ConfigError: something else was given; names the stage.
            ExpressionError: as `parse_expression`.
        """
        names = None if known is None else tuple(known)
        if isinstance(spec, str):
            return cls((parse_expression(spec, names),))
        if not isinstance(spec, list | tuple) or not spec:
            raise ConfigError(
                "reward: expected an expression or a list of {until_step, expr} stages, "
                f"found {show_value(spec)}"
            )
        expressions: list[Expression] = []
        ends: list[float] = []
        waits: list[str] = []
        places = [f"reward stage {number} of {len(spec)}" for number in range(1, len(spec) + 1)]
        stages = [_read_stage(item, where) for item, where in zip(spec, places, strict=True)]
        if stages[0].when is not None:
            raise ConfigError(f"{places[0]}: it holds from the start, so it takes no when")
        for number, (stage, where) in enumerate(zip(stages, places, strict=True), start=1):
            is_last = number == len(spec)
            if is_last and stage.until_step is not None:
                raise ConfigError(
                    f"{where}: the last stage must have no until_step (it holds to the end of the "
                    f"run), found {stage.until_step}"
                )
            if not is_last:
                waits.append(stages[number].when or "")
                if stage.until_step is None and not waits[-1]:
                    raise ConfigError(
                        f"{where}: only the last stage may have no until_step, or one before a "
                        "stage with when"
                    )
                end = math.inf if stage.until_step is None else stage.until_step
                last = max((one for one in ends if one < math.inf), default=0)
                if end <= last:
                    raise ConfigError(
                        f"{where}: until_step {end} does not come after the previous stage's {last}"
                    )
                ends.append(end)
            try:
                expressions.append(parse_expression(stage.expr, names))
            except ExpressionError as error:
                raise type(error)(f"{where}: {error}") from None
        return cls(tuple(expressions), tuple(ends), tuple(waits))

    def at(self, step: int) -> Expression:
        """The expression that holds at `step`: from 1 in training, 0 before it.

        A stage that waits for a condition has not begun, unless `begun` said so. One whose step has
        come does not wait for those before it.
        """
        begun = (number for number, end in enumerate(self.ends, 1) if end < step)
        return self.expressions[max(begun, default=0)]

    def begun(self, steps: Sequence[int]) -> RewardSchedule:
        """The schedule whose stages but the first began after these steps, as far as they did."""
        return replace(self, ends=(*steps, *self.ends[len(steps) :]))

    @property
    def names(self) -> tuple[str, ...]:
        """Every component of any stage, once, in order of first appearance."""
        return tuple(dict.fromkeys(name for one in self.expressions for name in one.names))

    def __str__(self) -> str:
        parts = []
        waits = self.waits or ("",) * len(self.ends)
        for expression, end, wait in zip(self.expressions, self.ends, waits, strict=False):
            ways = [wait] if wait else []
            ways = [f"step {end}", *ways] if end < math.inf else ways
            parts.append(f"{expression} until {' or '.join(ways)}")
        return ", then ".join([*parts, str(self.expressions[-1])])


def _read_stage(item: object, where: str) -> RewardStage:
    try:
        return RewardStage.model_validate(item, strict=True)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    key = str(fault["loc"][0]) if fault["loc"] else ""
    if fault["type"] == "extra_forbidden":
        raise ConfigError(f"{where}: unknown key '{key}'.{suggest(key, RewardStage.model_fields)}")
    if not key or fault["type"] == "missing":
        raise ConfigError(f"{where}: expected {{until_step, expr}}, found {show_value(item)}")
    raise ConfigError(f"{where}: {key} = {show_value(fault['input'])}: {fault['msg']}")
