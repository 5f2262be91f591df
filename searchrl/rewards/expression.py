"""The reward expression `0.2*format+em-0.01*searches`, and schedules of expressions.

Owns the grammar, its errors and the weighted sum; it never runs a component.

    expression = ["+" | "-"] term { ("+" | "-") term }
    term       = number "*" name | name | number
    name       = identifier | distribution ":" identifier
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from searchrl.config.curriculum import stages_of
from searchrl.core.group import WeightedScore
from searchrl.errors import ExpressionError, UnknownNameError, suggest

HEADLINES = ("em", "success", "env", "reward")
"""Candidates for the headline figure of a run: the first one that is paid or was measured."""

_NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_IDENTIFIER = r"[^\W\d]\w*"
_QUALIFIED = rf"\w[\w.-]*:{_IDENTIFIER}"
_SIGNS = {"+": 1.0, "-": -1.0}
_SHAPE = (
    "An expression is a sum of weight*name terms without parentheses, such as "
    '"0.2*format+em-0.01*searches".'
)


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

    def between(self, ranges: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        """Least and greatest reward, given the ranges of components."""
        low = high = self.constant
        for weight, name in self.terms:
            if weight:  # 0 times an open end is no number
                ends = [weight * end for end in ranges[name]]
                low, high = low + min(ends), high + max(ends)
        return low, high

    def evaluate(self, scores: Mapping[str, float], left_out: Container[str] = ()) -> float:
        """Return the reward without the terms of `left_out`.

        A term of weight 0 is not read; KeyError if any other score is missing.
        """
        reward = self.constant
        for weight, name in self.terms:
            if weight and name not in left_out:
                reward += weight * scores[name]
        return reward

    def split(self, scores: Mapping[str, float]) -> dict[str, WeightedScore]:
        """Return the weight and the score of each component that has one."""
        return {
            name: WeightedScore(weight, scores[name])
            for weight, name in self.terms
            if name in scores
        }

    def __str__(self) -> str:
        # "a-b:c" reads as one qualified name, so a minus beside one needs spaces.
        is_near = ("-" in name or (":" in name and weight < 0) for weight, name in self.terms)
        gap = " " if any(is_near) else ""
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
    names = None if known is None else tuple(known)
    pieces = iter(_split(text, names))
    kind, piece, at = next(pieces)
    weights, constant, wanted = dict[str, float](), 0.0, ""
    while kind != "end" or not wanted:
        sign = _SIGNS.get(piece, 1.0)
        if piece in _SIGNS:
            kind, piece, at = next(pieces)
        elif piece == "*" and wanted:
            problem = "expected '+', '-' or the end, found '*' (the weight comes first: 2*em)"
            raise _fault(text, at, problem)
        elif wanted:
            raise _fault(text, at, f"expected {wanted} or the end, found {{}}")
        start, number, name = at, 1.0, None
        if kind == "number":
            number = float(piece)
            if not math.isfinite(number):
                raise _fault(text, at, f"{piece:.60} is not a finite number")
            kind, piece, at = next(pieces)
            if piece == "*":
                kind, piece, at = next(pieces)
                if kind != "name":
                    raise _fault(text, at, "expected a component name after '*', found {}")
                name = piece
        elif kind == "name":
            name = piece
        else:
            raise _fault(text, at, "expected a component name or a number, found {}")
        if name is None:
            constant, wanted = constant + sign * number, "'*', '+', '-'"
        else:
            if names is not None and name not in names:
                raise _unknown(text, at, names)
            weights[name], wanted = weights.get(name, 0.0) + sign * number, "'+', '-'"
            kind, piece, at = next(pieces)
        if not math.isfinite(constant if name is None else weights[name]):
            raise _fault(text, start, "the sum of the weights is not a finite number")
    if not weights:
        raise _fault(text, 0, "it names no reward component; a constant trains nothing")
    return Expression(tuple((weight, name) for name, weight in weights.items()), constant)


def _split(text: str, known: Sequence[str] | None) -> list[tuple[str, str, int]]:
    # Without known names "a-b:c" is one qualified name; with them, "a" minus "b:c" may be meant.
    ways = [rf"{re.escape(name)}(?!\w)" for name in known or () if ":" in name]
    ways += [_IDENTIFIER] if known is not None else [_QUALIFIED, _IDENTIFIER]
    piece = rf"\s*(?:(?P<name>{'|'.join(ways)})|(?P<number>{_NUMBER})|(?P<end>\Z)|(?P<other>.))"
    matches = re.finditer(piece, text, re.DOTALL)
    return [(m.lastgroup or "", m[m.lastgroup or 0], m.start(m.lastgroup or 0)) for m in matches]


def _unknown(text: str, at: int, known: Sequence[str]) -> ExpressionError:
    # Show the whole qualified name that was meant, with its hyphens.
    match = re.compile(f"{_QUALIFIED}|{_IDENTIFIER}").match(text, at)
    assert match is not None
    name = match.group()
    hint = suggest(name[:60], known)
    if (meant := name.partition(":")[2]) in known:
        hint = f" Did you mean '{meant}'?"
    kind = functools.partial(UnknownComponentError, component=name)
    return _fault(text, at, f"unknown reward component '{name:.60}'.{hint}", kind)


def _fault(
    text: str, at: int, message: str, kind: Callable[[str], ExpressionError] = ExpressionError
) -> ExpressionError:
    """The error at a place; `{}` in a message becomes the character there."""
    symbol = repr(text[at]) if at < len(text) else "the end"
    shown = "".join(c if c.isprintable() else " " for c in text)
    # Chinese characters take two columns in a terminal.
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text[:at])
    return kind(
        f"reward expression, column {at + 1}: {message.replace('{}', symbol)}\n"
        f"  {shown}\n  {' ' * (at + wide)}^\n{_SHAPE}"
    )


@dataclass(frozen=True, slots=True)
class RewardSchedule:
    """Expressions by optimiser step. Made by `RewardSchedule.parse`.

    `begins` are the steps after which each expression begins, ascending from 0.
    """

    expressions: tuple[Expression, ...]
    begins: tuple[int, ...] = (0,)

    @classmethod
    def parse(
        cls, spec: str | Mapping[int, str], known: Iterable[str] | None = None
    ) -> RewardSchedule:
        """Read the config value `reward`: an expression, or `{0: …, 30: …}`.

        Raises:
            ExpressionError: as `parse_expression`; names the stage.
        """
        names = None if known is None else tuple(known)
        if isinstance(spec, str):
            return cls((parse_expression(spec, names),))
        expressions: list[Expression] = []
        stages = stages_of(spec)
        for begin, text in stages:
            try:
                expressions.append(parse_expression(text, names))
            except ExpressionError as error:
                raise type(error)(f"reward from step {begin}: {error}") from None
        return cls(tuple(expressions), tuple(begin for begin, _ in stages))

    def at(self, step: int) -> Expression:
        """The expression that holds at `step`: from 1 in training, 0 before it."""
        return self.expressions[max(0, bisect_left(self.begins, step) - 1)]

    @property
    def names(self) -> tuple[str, ...]:
        """Every component of any stage, once, in order of first appearance."""
        return tuple(dict.fromkeys(name for one in self.expressions for name in one.names))

    @property
    def headline(self) -> str:
        """The first of `HEADLINES` that the last expression pays; else `reward`."""
        paid = {name for weight, name in self.expressions[-1].terms if weight}
        return next((name for name in HEADLINES if name in paid), "reward")

    def __str__(self) -> str:
        ends = zip(self.expressions, self.begins[1:], strict=False)
        parts = [f"{expression} until step {end}" for expression, end in ends]
        return ", then ".join([*parts, str(self.expressions[-1])])
