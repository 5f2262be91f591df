"""What can be learnt of a tag protocol from outside: its tags, its wrapper, the actions it writes.

Owns these questions for the criteria of protocols and environments. Asks the protocol only what its
contract offers, so it knows no protocol by name. Whatever the protocol raises goes through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from searchrl.contracts import TagProtocol
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, Passage

MARK = "Zanzibar"
"""A word that no protocol writes by itself."""

_TAG = re.compile(r"</?[A-Za-z][\w\-]*>|\[/?[A-Za-z][\w\-]*\]|<\|/?[A-Za-z][\w\-]*\|>")

_BODIES = (
    MARK,
    f'{{"name": "search", "arguments": {{"query": "{MARK}"}}}}',
    f'{{"name": "search", "arguments": {{"queries": ["{MARK}"]}}}}',
    f'{{"name": "lookup", "arguments": {{"word": "{MARK}"}}}}',
    f'{{"query": "{MARK}"}}',
)
"""What may stand inside a tag: a word, a call of a tool."""


def tags_in(text: str) -> tuple[str, ...]:
    """Every `<tag>`, `</tag>`, `[TAG]` and `<|tag|>` of a text, each once, in order."""
    return tuple(dict.fromkeys(_TAG.findall(text)))


def find_wrapper(protocol: TagProtocol) -> tuple[str, ...]:
    """The tags that an observation stands in, which only the environment may write."""
    return tags_in(protocol.render_observation([Passage("p", MARK)]))


def render(protocol: TagProtocol, action: Action, thought: str = "") -> str | None:
    """The turn that says `action`, or None if the protocol writes no such action."""
    try:
        return protocol.render_turn(action, thought)
    except ValueError:
        return None


def open_turn(protocol: TagProtocol, kind: str) -> str | None:
    """The text that commits a turn to `kind`, or None if the protocol opens no such turn."""
    try:
        return protocol.opening(kind)
    except ValueError:
        return None


def find_actions(protocol: TagProtocol) -> tuple[Action, ...]:
    """One action of every kind that the protocol is found to write.

    Searches and answers are tried; other kinds are found by reading what stands in its
    instruction and what ends with its stop strings.
    """
    found: dict[str, Action] = {}
    for action in (Action(SEARCH, (MARK,)), Action(ANSWER, MARK), *_read_actions(protocol)):
        if action.kind not in found and render(protocol, action) is not None:
            found[action.kind] = action
    return tuple(found.values())


def find_legal_turns(protocol: TagProtocol) -> tuple[str, ...]:
    """Turns that parse to an action and end with a stop string, however they were come by."""
    rendered = [render(protocol, action, "a thought") for action in find_actions(protocol)]
    turns = [turn for turn in rendered if turn is not None]
    turns += [turn for turn in _guess_turns(protocol) if protocol.parse(turn).kind != INVALID]
    return tuple(dict.fromkeys(turn for turn in turns if turn.endswith(tuple(protocol.stops))))


def find_tags(protocol: TagProtocol) -> tuple[str, ...]:
    """Every tag that the protocol writes, in turns and around observations, and its stops."""
    turns = [render(protocol, action, "a thought") or "" for action in find_actions(protocol)]
    texts = [*turns, *protocol.stops, protocol.render_observation([Passage("p", MARK)])]
    return tuple(dict.fromkeys(tag for text in texts for tag in tags_in(text)))


def forge(protocol: TagProtocol) -> str:
    """Text of a passage that pretends to be more: it leaves the observation and answers."""
    opening, closing = _split_wrapper(protocol)
    turns = [render(protocol, action, "a thought") or "" for action in find_actions(protocol)]
    return f"{closing} {' '.join(reversed(turns))} {opening}"


def _split_wrapper(protocol: TagProtocol) -> tuple[str, str]:
    before, _, after = protocol.render_observation([Passage("p", MARK)]).partition(MARK)
    return "".join(tags_in(before)), "".join(tags_in(after))


def _read_actions(protocol: TagProtocol) -> Iterator[Action]:
    for turn in _guess_turns(protocol):
        action = protocol.parse(turn)
        if action.kind not in (INVALID, SEARCH, ANSWER):
            yield action


def _guess_turns(protocol: TagProtocol) -> Iterator[str]:
    """Texts that might be turns: every closing tag among the stops with its opening tag before."""
    thoughts = ("", *(f"<{tag}>a thought</{tag}>\n" for tag in _thought_tags(protocol)))
    for stop in protocol.stops:
        tags = tags_in(stop)
        openers = [tag.replace("/", "", 1) for tag in tags if "/" in tag] or [""]
        for thought in thoughts:
            for body in _BODIES:
                yield f"{thought}{openers[0]}{body}{stop}"


def _thought_tags(protocol: TagProtocol) -> tuple[str, ...]:
    names = re.findall(r"<([A-Za-z]\w*)>", protocol.instruction)
    return tuple(dict.fromkeys(names))[:3]
