"""Tags: which names are usable, how a turn splits into blocks, which order of blocks is valid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from searchrl.errors import ConfigError

INFORMATION_VARIANTS = ("information", "context", "result", "r")
"""Names that systems use for the environment's tag: neutralised in foreign text everywhere."""

_TAG_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Tags(NamedTuple):
    """The tag names of one protocol, without angle brackets; `answer` may be "" for none."""

    think: str
    request: str
    information: str
    answer: str = ""


class Part(StrEnum):
    """Kind of a segment of a turn: a complete block, a tag alone, or text."""

    THINK = "think"
    REQUEST = "request"  # a search, a tool call, an act
    ANSWER = "answer"
    INFORMATION = "information"  # an information tag, open or close
    STRAY = "stray"  # a tag that is not part of a complete block: unclosed, unopened or nested
    TEXT = "text"  # outside every block


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a turn. `text` is a block's inner text, or the tag or text itself."""

    part: Part
    text: str


# End-of-message tokens as text; never part of an answer.
_END_MARKS = (
    r"<\|[A-Za-z0-9_]+\|>",
    r"<end_of_turn>",
    r"<eos>",
    r"</s>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_END_MARK_CHARS = 64


class TagGrammar:
    """Splits turns into segments by the tags of one protocol."""

    def __init__(self, tags: Tags) -> None:
        parts = zip(tags, (Part.THINK, Part.REQUEST, Part.INFORMATION, Part.ANSWER), strict=True)
        self._parts = {tag: part for tag, part in parts if tag}
        names = "|".join(re.escape(name) for name in self._parts)
        self._tag = re.compile(rf"<(/?)({names})>")
        # A tag named `s` or `eos` is not an end mark.
        marks = [mark for mark in _END_MARKS if mark.strip("</>") not in self._parts]
        self._end = re.compile(rf"(?:{'|'.join(marks)})\Z")

    def strip(self, text: str) -> str:
        """Remove white space at both ends, and end-of-message tokens at the end."""
        end = len(text)
        while True:
            while end and text[end - 1].isspace():
                end -= 1
            match = self._end.search(text, max(0, end - _END_MARK_CHARS), end)
            if match is None:
                return text[:end].lstrip()
            end = match.start()

    def split(self, text: str) -> tuple[Segment, ...]:
        """Split a turn. Total and linear.

        A block is an opening tag whose next tag of the protocol is its own closing tag.
        """
        text = self.strip(text)
        marks = list(self._tag.finditer(text))
        segments: list[Segment] = []
        position = index = 0

        def outside(end: int) -> None:
            if text[position:end].strip():
                segments.append(Segment(Part.TEXT, text[position:end].strip()))

        while index < len(marks):
            mark = marks[index]
            outside(mark.start())
            part = self._parts[mark.group(2)]
            follower = marks[index + 1] if index + 1 < len(marks) else None
            if part is Part.INFORMATION:
                segments.append(Segment(part, mark.group()))
                position, index = mark.end(), index + 1
            elif not mark.group(1) and follower and follower.groups() == ("/", mark.group(2)):
                inner = self.strip(text[mark.end() : follower.start()])
                segments.append(Segment(part, inner))
                position, index = follower.end(), index + 2
            else:
                segments.append(Segment(Part.STRAY, mark.group()))
                position, index = mark.end(), index + 1
        outside(len(text))
        return tuple(segments)


SEARCH_ORDER = re.compile(r"(BT?|T)(R;[BT])*A;+")
"""think -> (search -> information -> think)* -> answer, as `is_valid_order` reads it.

A blank think block at the start, as chat templates write it with thinking off, is no thought.
"""
ACT_ORDER = re.compile(r"B?([BT]?R;)+")
"""At most one thought, then one act, in every turn; a blank think block may begin the first."""

_LETTERS = {Part.THINK: "T", Part.REQUEST: "R", Part.ANSWER: "A"}


def is_valid_order(turns: Iterable[Sequence[Segment]], order: re.Pattern[str]) -> bool:
    """Return True if the blocks of a dialogue's turns follow `order`.

    It matches one letter per block: T a thought, B a blank one, R a request, A an answer, `;` the
    end of a turn, `?` anything else.
    """
    written = "".join("".join(map(_letter, turn)) + ";" for turn in turns)
    return order.fullmatch(written) is not None


def _letter(segment: Segment) -> str:
    if segment.part is Part.THINK and not segment.text:
        return "B"
    return _LETTERS.get(segment.part, "?") if segment.text else "?"


def ensure_tag_names(names: Mapping[str, str]) -> None:
    """Raise `ConfigError` if a setting's tag name is invalid, or used twice."""
    for setting, name in names.items():
        if not isinstance(name, str) or not _TAG_NAME.fullmatch(name):
            raise ConfigError(
                f"protocol.{setting}: {name!r} is not a tag name; expected a lower-case letter "
                "followed by lower-case letters, digits or underscores"
            )
    if len(set(names.values())) < len(names):
        listed = ", ".join(names.values())
        raise ConfigError(f"protocol tags must differ from each other, got {listed}")


def foreign_tags(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern of the tags of `names` and usual ones, in any case and spacing; linear."""
    known = "|".join(sorted({*names, *INFORMATION_VARIANTS, "think", "search", "answer"}))
    return re.compile(rf"<(\s*+/?\s*+(?:{known})\s*+/?\s*+)>", re.IGNORECASE)
