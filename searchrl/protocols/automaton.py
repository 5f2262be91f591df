"""The grammar of a turn and the automaton behind the format verdict.

Owns how a turn's text is split into blocks (`TagGrammar.split`, for any tag names) and which order
of blocks over a search dialogue is valid (`is_valid_order`): think -> (search -> information ->
think)* -> answer. It reads the model's turns only: the environment's part is the step from one turn
to the next. Knows no rewards, no passages and no prompt text. Called by the protocols.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Tags(NamedTuple):
    """The tag names of one protocol, without angle brackets.

    `request` is the tag of what the model asks of the environment (a search, a tool call, an act);
    `answer` is "" in a protocol without answers.
    """

    think: str
    request: str
    information: str
    answer: str = ""


class Part(StrEnum):
    """What a segment of a turn is."""

    THINK = "think"
    """A complete think block."""
    REQUEST = "request"
    """A complete request block: a search, a tool call, an act."""
    ANSWER = "answer"
    """A complete answer block."""
    INFORMATION = "information"
    """An information tag, open or close: only the environment may write it."""
    STRAY = "stray"
    """A protocol tag that is not part of a complete block: unclosed, unopened or nested."""
    TEXT = "text"
    """Anything but white space outside every block."""


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
        # A tag may be named `s` or `eos`; then it is a tag and not an end mark.
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

        A block is an opening tag whose next protocol tag is its own closing tag. So a protocol
        tag inside a block breaks that block, while unknown or upper-case tags are plain text.
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


class State(StrEnum):
    """The states of the format automaton."""

    START = "start"
    """Nothing written: a thought must come."""
    BLANKED = "blanked"
    """The dialogue began with an empty think block, as chat templates write it with thinking
    off. It counts as the thought; a model that then writes a thought has not thought twice."""
    THOUGHT = "thought"
    """A thought is complete: a request or the answer must come, in the same turn."""
    REQUESTED = "requested"
    """A request is complete: the turn must end here."""
    INFORMED = "informed"
    """The environment has replied: a new thought must come."""
    ANSWERED = "answered"
    """The answer is complete: nothing may come."""
    BROKEN = "broken"
    """The order is invalid, and stays invalid."""


class Event(StrEnum):
    """What moves the automaton."""

    BLANK_THINK = "blank_think"
    THINK = "think"
    REQUEST = "request"
    ANSWER = "answer"
    TURN_END = "turn_end"
    FAULT = "fault"


# Every step that is allowed; any other (state, event) breaks the order.
_STEPS: dict[tuple[State, Event], State] = {
    (State.START, Event.BLANK_THINK): State.BLANKED,
    (State.START, Event.THINK): State.THOUGHT,
    (State.BLANKED, Event.THINK): State.THOUGHT,
    (State.BLANKED, Event.REQUEST): State.REQUESTED,
    (State.BLANKED, Event.ANSWER): State.ANSWERED,
    (State.THOUGHT, Event.REQUEST): State.REQUESTED,
    (State.THOUGHT, Event.ANSWER): State.ANSWERED,
    (State.REQUESTED, Event.TURN_END): State.INFORMED,
    (State.INFORMED, Event.BLANK_THINK): State.THOUGHT,
    (State.INFORMED, Event.THINK): State.THOUGHT,
    (State.ANSWERED, Event.TURN_END): State.ANSWERED,
}


def _events(turns: Sequence[Sequence[Segment]]) -> Iterator[Event]:
    for turn in turns:
        for segment in turn:
            if segment.part is Part.THINK:
                yield Event.THINK if segment.text else Event.BLANK_THINK
            elif segment.part is Part.REQUEST and segment.text:
                yield Event.REQUEST
            elif segment.part is Part.ANSWER and segment.text:
                yield Event.ANSWER
            else:
                yield Event.FAULT
        yield Event.TURN_END


def is_valid_order(turns: Sequence[Sequence[Segment]]) -> bool:
    """Whether a dialogue's turns follow think -> (search -> information -> think)* -> answer."""
    state = State.START
    for event in _events(turns):
        state = _STEPS.get((state, event), State.BROKEN)
    return state is State.ANSWERED
