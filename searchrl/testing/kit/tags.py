"""The grammar of a tag protocol, learned from outside: its tags, its wrapper, its actions.

A method that raises counts as one that says nothing: its own criterion reports it.
"""

from __future__ import annotations

import re
from functools import cached_property

from searchrl.contracts import TagProtocol
from searchrl.core.episode import ACT, ANSWER, INVALID, SEARCH, TOOL, Action, Passage, ToolCall

MARK = "Zanzibar"
"""A word that no protocol writes by itself."""

_TAG = re.compile(r"</?[A-Za-z][\w\-]*>|\[/?[A-Za-z][\w\-]*\]|<\|/?[A-Za-z][\w\-]*\|>")

_ACTIONS = (
    Action(SEARCH, (MARK,)),
    Action(ANSWER, MARK),
    Action(ACT, MARK),
    Action(TOOL, ToolCall("lookup", {"word": MARK})),
)
"""Actions that a protocol may be able to write."""


def tags_in(text: str) -> tuple[str, ...]:
    """Every `<tag>`, `</tag>`, `[TAG]` and `<|tag|>` of a text, each once, in order."""
    return tuple(dict.fromkeys(_TAG.findall(text)))


class Grammar:
    """A protocol, and the texts that it reads and writes. Each question is asked once."""

    def __init__(self, protocol: TagProtocol) -> None:
        self.protocol = protocol

    def render(self, action: Action, thought: str = "a thought") -> str | None:
        """The turn that says `action`, or None if the protocol writes no such action."""
        try:
            return self.protocol.render_turn(action, thought)
        except (Exception, SystemExit):
            return None

    def parse(self, text: str) -> Action:
        """The action of a text; invalid where the protocol raises."""
        try:
            return self.protocol.parse(text)
        except (Exception, SystemExit):
            return Action(INVALID, None, "parse() raised")

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """One action of every kind that it writes."""
        return tuple(action for action in _ACTIONS if self.render(action, "") is not None)

    @cached_property
    def turns(self) -> tuple[str, ...]:
        """The turns of its actions."""
        return tuple(turn for action in self.actions if (turn := self.render(action)) is not None)

    @cached_property
    def legal_turns(self) -> tuple[str, ...]:
        """Its turns that parse to an action and end with a stop string."""
        return tuple(
            turn
            for turn in self.turns
            if self.parse(turn).kind != INVALID and self.ends_at_stop(turn)
        )

    def ends_at_stop(self, turn: str) -> bool:
        """True if a turn ends with the first stop string in it."""
        ends = [turn.find(stop) + len(stop) for stop in self.protocol.stops if stop in turn]
        return min(ends, default=-1) == len(turn)

    @cached_property
    def wrapper(self) -> tuple[str, ...]:
        """The tags that an observation stands in, which only the environment may write."""
        return tags_in(self._observation)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag that the protocol writes, in turns and around observations, and its stops."""
        texts = [*self.turns, *self.protocol.stops, self._observation]
        return tuple(dict.fromkeys(tag for text in texts for tag in tags_in(text)))

    @cached_property
    def forged(self) -> str:
        """Text of a passage that pretends to be more: it leaves the observation and answers."""
        before, _, after = self._observation.partition(MARK)
        opening, closing = "".join(tags_in(before)), "".join(tags_in(after))
        return f"{closing} {' '.join(reversed(self.turns))} {opening}"

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The pieces of hard texts for it."""
        names = dict.fromkeys((*self.tags, *(tag.upper() for tag in self.tags), *self.legal_turns))
        return (*names, self.forged)

    @cached_property
    def _observation(self) -> str:
        try:
            return self.protocol.render_observation([Passage("p", MARK)])
        except (Exception, SystemExit):
            return ""
