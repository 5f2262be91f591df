"""Texts that a model may write on a bad day, and the search for the shortest that breaks something.

Owns the hypothesis settings of the checker: every run tries the same texts, nothing is stored.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from searchrl.testing.kit.texts import HARD_TEXTS

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
F = TypeVar("F")

NUM_EXAMPLES = 100
"""Texts that are drawn where nothing is found."""


def make_texts(pieces: Sequence[str]) -> SearchStrategy[str]:
    """Texts put together of `pieces` (a protocol's tags, say), hard texts and anything else."""
    from hypothesis import strategies as st

    short = [text for text in (*HARD_TEXTS, "plain words") if len(text) < 1000]
    tags = st.sampled_from(list(pieces))
    # Half of the parts are pieces: what breaks a parser is mostly the order of its own tags.
    part = st.one_of(tags, tags.map(str), st.sampled_from(short), st.text(max_size=12))
    return st.lists(part, max_size=10).map("".join)


def find_faulty(
    listed: Iterable[T], drawn: SearchStrategy[T], find_fault: Callable[[T], F | None]
) -> tuple[T, F] | None:
    """The first listed value with a fault, else the simplest drawn one; and the fault."""
    from hypothesis import HealthCheck, configuration, errors, find, settings

    faults: list[tuple[T, F]] = []

    def is_faulty(value: T) -> bool:
        if fault := find_fault(value):
            faults.append((value, fault))
        return bool(fault)

    if not any(map(is_faulty, listed)):
        # Tables that hypothesis keeps would lie in a folder of the current directory otherwise.
        configuration.set_hypothesis_home_dir(tempfile.gettempdir())
        chosen = settings(
            max_examples=NUM_EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        # Flaky: the value has the fault at one time and not at the next.
        with contextlib.suppress(errors.NoSuchExample, errors.Flaky):
            find(drawn, is_faulty, settings=chosen)
    return faults[-1] if faults else None


def catch(call: Callable[..., object], *args: object) -> BaseException | None:
    """The error that a call raises, or None. Somebody's Ctrl-C is not caught."""
    try:
        call(*args)
    except (Exception, SystemExit) as error:
        return error
    return None


def shorten(text: str, limit: int = 80) -> str:
    """The text as a Python literal of about `limit` characters, for messages."""
    literal = repr(text)
    if len(literal) <= limit:
        return literal
    return f"{literal[: limit - 20]}… ({len(text)} characters)"
