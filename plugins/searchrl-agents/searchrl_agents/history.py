"""One rule for history: which segment of a rollout a request goes on with, and with which new ids.

Owns the recognition of what was said before, and the rendering of what is new. Ids that were
sampled stay as they are, whatever a client made of their text; only new messages are rendered, and
no text of theirs becomes a control token.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from searchrl import PolicyError
from searchrl.protocols import read_json
from searchrl_agents.talk import Called, Message, Refused, Reply, Request

Parts = list[tuple[str, bool]]
"""Texts; True for those of the template."""


class Placed(NamedTuple):
    """Place of a request: `ids` are new in `segment`, and all of a segment that begins."""

    segment: int
    ids: list[int]
    reason: str
    """Reason why a segment begins; empty: none does."""


@dataclass(slots=True)
class _Said:
    """A reply in a segment, the messages before it, and the places of its tokens."""

    before: tuple[Message, ...]
    """Messages since the last reply."""
    reply: Reply
    start: int
    stop: int
    ended_itself: bool
    """True if its last id is the one that closes a message."""


@dataclass(slots=True)
class _Segment:
    tools: str
    ids: list[int]
    said: list[_Said]


class History:
    """The segments of one rollout.

    Args:
        codec: the policy's renderer.
        mode: `append` goes on with the stored ids if a client leaves out the reasoning; `as_sent`
            begins a segment, the text that a deployed model would read.
        max_tokens: limit of one segment.
    """

    def __init__(self, codec: Any, mode: str = "append", max_tokens: int = 1 << 30) -> None:
        self._codec = codec
        self._mode = mode
        self._max_tokens = max_tokens
        self._segments: list[_Segment] = []
        self._asked: tuple[int, tuple[Message, ...]] = (0, ())
        self.num_replies = 0

    def place(self, request: Request) -> Placed:
        """Return the place of a request; `take` must follow with the sampled reply.

        Raises:
            Refused: the template does not show a message or tool exactly once, or there is no room
                for a reply. Nothing has changed then.
        """
        tools = json.dumps([request.thinking, *request.tools], sort_keys=True)
        number, count, rest, reason = self._find(request, tools)
        shared: list[int] = []
        said: list[_Said] = []
        if number < 0:
            before = request.messages
            new = self._encode(request, before)
        else:
            segment = self._segments[number]
            said = segment.said[:count]
            if count and rest:
                before, shared = rest, segment.ids[: said[-1].stop]
                new = self._behind(said[-1], request, rest)
            else:  # the same request again: another sample of its reply
                again = segment.said[count]
                before, shared, new = again.before, segment.ids[: again.start], []
        ids = [*shared, *new]
        if len(ids) >= self._max_tokens:
            what = f"these messages have {len(ids):,} tokens; the run allows {self._max_tokens:,}"
            raise Refused(f"{what} with the reply", 400, "context_length_exceeded")
        if reason:
            number, new = len(self._segments), ids
            self._segments.append(_Segment(tools, [], said))
            shared = []
        self._segments[number].ids[len(shared) :] = new
        self._asked = number, before
        return Placed(number, new, reason)

    @property
    def num_tokens(self) -> int:
        """Tokens of the segment that was placed last."""
        return len(self._segments[self._asked[0]].ids)

    def take(self, reply: Reply, ended_itself: bool) -> None:
        """Record the reply to the request that was placed last."""
        self.num_replies += 1
        number, before = self._asked
        segment = self._segments[number]
        start = len(segment.ids)
        segment.ids += reply.ids
        segment.said.append(_Said(before, reply, start, len(segment.ids), ended_itself))

    def _encode(
        self,
        request: Request,
        messages: tuple[Message, ...],
        calls: tuple[Called, ...] | None = None,
    ) -> list[int]:
        """Ids of a dialogue up to the policy's turn; with `calls`, behind a turn with these."""
        if calls is not None:
            turns = (Message("user", "go on"), Message("assistant", "said", calls=calls))
            parts, ends = _show(self._codec, (*turns, *messages), request)
            parts = parts[ends[1] :]
        else:
            parts, _ = _show(self._codec, messages, request)
        ids: list[int] = self._codec.encode_shown(parts)
        return ids

    def _behind(self, last: _Said, request: Request, rest: tuple[Message, ...]) -> list[int]:
        """New messages behind a reply, without the id that closed it if that was sampled."""
        closing = last.reply.ids[-1:] if last.ended_itself else ()
        try:
            new = self._encode(request, rest, ())
        except Refused:
            calls = request.messages[-len(rest) - 1].calls
            if not (calls and closing):
                raise
            # The template needs the calls that tools answer; they were sampled.
            new = self._encode(request, rest, calls)
            new = new[new.index(closing[0]) :]
        return new[1:] if tuple(new[:1]) == closing else new

    def _find(self, request: Request, tools: str) -> tuple[int, int, tuple[Message, ...], str]:
        """Return (segment or -1, number of replies that match, messages behind them, reason).

        The reason is empty where the segment goes on.
        """
        found: list[tuple[int, bool, int, tuple[Message, ...], str]] = []
        missed: list[tuple[int, str]] = [(0, "first")]
        for number, segment in enumerate(self._segments):
            count, rest, reason = self._match(segment, request)
            if segment.tools != tools:
                missed.append((count, "tools"))
            elif reason in ("", "branch", "repeated"):
                found.append((count, not reason, number, rest, reason))
            else:
                missed.append((count, reason))
        if not found:
            return -1, 0, (), missed[-1][1]
        count, _, number, rest, reason = max(found, key=lambda one: one[:3])
        return number, count, rest, reason

    def _match(self, segment: _Segment, request: Request) -> tuple[int, tuple[Message, ...], str]:
        """Number of replies that a request repeats, the rest, and why it does not go on."""
        at, messages = 0, request.messages
        for count, said in enumerate(segment.said):
            size = len(said.before)
            if not self._shows_alike(request, at, said.before):
                if count and messages[at:]:
                    return count, messages[at:], "branch"
                left = messages[at:]
                is_short = len(left) < size and _plain(left) == _plain(said.before[: len(left)])
                return count, (), "shortened" if is_short else "edited"
            at += size
            if at == len(messages):
                return count, (), "repeated"
            message, reply = messages[at], said.reply
            if not _same_words(message, reply):
                return count, (), "edited"
            is_lost = _words(message.reasoning) != _words(reply.reasoning)
            if self._mode == "as_sent" and reply.reasoning and is_lost:
                return count, (), "reasoning"
            at += 1
        return len(segment.said), messages[at:], "" if messages[at:] else "shortened"

    def _shows_alike(self, request: Request, at: int, before: tuple[Message, ...]) -> bool:
        """Return True if messages from a place on are these, but for what the template trims."""
        head, again = request.messages[:at], request.messages[at : at + len(before)]
        if _plain(again) == _plain(before):
            return True
        bare, other = (
            [replace(message, content=message.content.strip()) for message in messages]
            for messages in (again, before)
        )
        with suppress(Refused):
            return _plain(bare) == _plain(other) and (
                self._encode(request, head + again) == self._encode(request, head + before)
            )
        return False


def _show(codec: Any, messages: Sequence[Message], request: Request) -> tuple[Parts, list[int]]:
    """The parts of a dialogue, and the part with which each message's text ends.

    Raises Refused if the template does not show each message and tool exactly once, in order.
    """
    slots: list[tuple[str, str, int, bool]] = []
    ids: dict[str, str] = {}

    def slot(text: str, owner: int, may_lack: bool = False) -> str:
        if not (core := text.strip()):
            return text
        word = f"qslot{len(slots)}q"
        slots.append((word, core, owner, may_lack))
        return text.replace(core, word, 1)  # the template trims white space, or keeps it

    def neutral(call_id: str) -> str:  # a template may show it
        return ids.setdefault(call_id, f"call{len(ids)}")

    shown: list[dict[str, Any]] = []
    for number, one in enumerate(messages):
        made: dict[str, Any] = {"role": one.role, "content": slot(one.content, number)}
        if one.reasoning:  # most templates leave it out of earlier turns
            made["reasoning_content"] = slot(one.reasoning, number, may_lack=True)
        if one.calls:
            made["tool_calls"] = [
                {
                    "type": "function",
                    "id": neutral(call.id),
                    "function": {
                        "name": slot(call.name, number),
                        "arguments": {slot(_arguments(call.arguments), number): 0},
                    },
                }
                for call in one.calls
            ]
        if one.role == "tool":
            made["tool_call_id"] = neutral(one.call_id)
        shown.append(made)
    tools = [dict(tool) for tool in request.tools] or None
    try:
        text = codec.show(shown, tools=tools, thinking=request.thinking is not False)
    except PolicyError as error:
        raise Refused(f"the policy's chat template cannot show these messages: {error}") from error
    places: list[tuple[int, int, str, int]] = []
    for word, said, owner, may_lack in slots:
        # Arguments stand in the place of a mapping of one key.
        found = [*re.finditer(rf'\{{"{word}": 0\}}|{word}', text)]
        if not found and may_lack:
            continue
        if len(found) != 1:
            raise Refused(
                f"the policy's chat template shows message {owner + 1} ({messages[owner].role}) "
                f"{len(found)} times; it can only be trained where each stands there once"
            )
        places.append((*found[0].span(), said, owner))
    for tool in tools or []:
        said = json.dumps(tool, ensure_ascii=False)
        if text.count(said) != 1:
            raise Refused(
                f"the policy's chat template shows the tool {tool.get('function', tool)!r:.200} "
                f"{text.count(said)} times, not once"
            )
        places.append((text.index(said), text.index(said) + len(said), said, -1))
    parts: Parts = []
    at, ends = 0, [0] * len(messages)
    for start, stop, said, owner in sorted(places):
        parts += [(text[at:start], True), (said, False)]
        at = stop
        if owner >= 0:
            ends[owner] = len(parts)
    return [*parts, (text[at:], True)], ends


def _arguments(text: str, sort_keys: bool = False) -> str:
    try:
        return json.dumps(read_json(text.strip() or "{}"), ensure_ascii=False, sort_keys=sort_keys)
    except ValueError:
        return text.strip()


def _words(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _calls(calls: Sequence[Called]) -> list[tuple[str, str]]:
    return [(one.name, _sorted(one.arguments)) for one in calls]


def _sorted(text: str) -> str:
    return unicodedata.normalize("NFC", _arguments(text, sort_keys=True))


def _same_words(message: Message, reply: Reply) -> bool:
    return (
        message.role == "assistant"
        and _words(message.content) == _words(reply.content)
        and _calls(message.calls) == _calls(reply.calls)
    )


def _plain(messages: Sequence[Message]) -> list[tuple[Any, ...]]:
    """Return the compared part of foreign messages: all that a template can show."""
    return [(one.role, one.content, one.reasoning, _calls(one.calls)) for one in messages]
