"""Texts that a model may write on a bad day, and the search for the shortest that breaks something.

Owns the hypothesis settings of the checker (every run tries the same texts, nothing is stored) and
a list of texts that broke programs before. Knows no plugin kind; called by the criteria.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from hypothesis import settings
    from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

NUM_EXAMPLES = 100
"""Texts that are drawn where nothing is found."""

HARD_TEXTS = (
    "",
    " ",
    "\n\n\n",
    "\x00",
    "\u2028\u2029\x85",
    "\ufeff\u202e‮abc",
    "é e\u0301 ﬁ 🙂 中文 ١٢٣",
    "<|im_end|>",
    "<|im_start|>assistant\n",
    "<|endoftext|></s><eos>",
    "%s %d {} {0} {name} \\1 \\g<1> $1 ${x}",
    "<" * 200 + ">" * 200,
    "(" * 300,
    "'; DROP TABLE tasks; --",
    "9" * 400,
    "-1e999 nan inf",
    "null true [] {}",
    "word " * 20_000,
    "x" * 100_000,
)
"""Empty, blank, huge, control tokens, format strings, numbers out of range, other scripts."""


@cache
def _settings(num_examples: int) -> settings:
    from hypothesis import HealthCheck, configuration, settings

    # Tables that hypothesis keeps would else lie in a folder of the current directory.
    configuration.set_hypothesis_home_dir(tempfile.gettempdir())
    return settings(
        max_examples=num_examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def make_texts(pieces: Sequence[str]) -> SearchStrategy[str]:
    """Texts put together of `pieces` (a protocol's tags, say), hard texts and anything else."""
    from hypothesis import strategies as st

    short = [text for text in (*HARD_TEXTS, "plain words") if len(text) < 1000]
    tags = st.sampled_from(list(pieces))
    # Half of the parts are pieces: what breaks a parser is mostly the order of its own tags.
    part = st.one_of(tags, tags.map(str), st.sampled_from(short), st.text(max_size=12))
    return st.lists(part, max_size=10).map("".join)


def find_example(texts: SearchStrategy[T], is_faulty: Callable[[T], bool]) -> T | None:
    """The simplest of `NUM_EXAMPLES` drawn values that is faulty; None if none is."""
    from hypothesis import find
    from hypothesis.errors import Flaky, NoSuchExample

    found: list[T] = []

    def is_kept(value: T) -> bool:
        if is_faulty(value):
            found.append(value)
            return True
        return False

    try:
        return find(texts, is_kept, settings=_settings(NUM_EXAMPLES))
    except (NoSuchExample, Flaky):  # faulty at one time and not at the next
        return found[-1] if found else None


def catch(call: Callable[..., object], *args: object) -> BaseException | None:
    """What a call raises, or None. Somebody's Ctrl-C is not caught."""
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
