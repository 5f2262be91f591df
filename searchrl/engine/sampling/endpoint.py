"""The endpoint generator: another model's turns, asked for over HTTP; text in, text out.

Owns how a dialogue becomes messages and a reply becomes a turn, and the codec that stands in for
the tokenizer: bytes, and control ids for the heads of messages. There are no log-probs, so what it
plays can be measured but not trained on as a sample. No torch.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Literal

from searchrl.api_client import Client, Message, Request
from searchrl.api_client.exchange import Finish, Reply
from searchrl.core.trajectory import TurnStop
from searchrl.engine.model.rendering import RenderedPrompt
from searchrl.engine.sampling.generator import Experts, FinishedTurn, Handle
from searchrl.engine.sampling.scripted import ByteCodec
from searchrl.engine.sampling.stops import find_stop_end
from searchrl.errors import EndpointFailure, GenerationFailure

Role = Literal["system", "user", "assistant"]
SYSTEM, USER, ASSISTANT, END = range(256, 260)
"""Control ids: the head of a message, and the end of the model's own."""

_ROLES: Mapping[int, Role] = {SYSTEM: "system", USER: "user", ASSISTANT: "assistant"}
_SHOWN = {SYSTEM: "", USER: "\n\n", ASSISTANT: "\n", END: ""}
"""Text of each control id for a reader."""
_CLOSING = re.compile(r"</([\w-]+)>")


class MessageCodec(ByteCodec):
    """Bytes, with control ids between messages."""

    def render_prompt(
        self, instruction: str, user_text: str, *, thinking: bool = True, forced_opening: str = ""
    ) -> RenderedPrompt:
        """Render messages: the instruction for the system, the prompt for the user.

        `forced_opening` begins the assistant's message; only completions use it, because a chat
        server begins its own message.
        """
        ids = [SYSTEM, *super().encode_plain(instruction)] if instruction else []
        ids += [USER, *super().encode_plain(user_text)]
        ids += [ASSISTANT, *super().encode_plain(forced_opening)]
        return RenderedPrompt(ids, forced_opening, self.decode(ids))

    def encode_plain(self, text: str) -> list[int]:
        """An observation: a message of the user, behind which the assistant goes on."""
        return [USER, *super().encode_plain(text), ASSISTANT] if text else []

    def encode_model_text(self, text: str) -> list[int]:
        """UTF-8 bytes of the text."""
        return super().encode_plain(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, with white space between messages."""
        parts = [
            _SHOWN[control] if control is not None else super(MessageCodec, self).decode(piece)
            for control, piece in _pieces(ids)
        ]
        return "".join(parts)

    def read_messages(self, prompt_ids: Sequence[int]) -> list[Message]:
        """The messages of a rendered prompt, without an empty one of the assistant."""
        messages: list[Message] = []
        role: Role = "user"
        for control, piece in _pieces(prompt_ids):
            if control is not None:
                role = _ROLES.get(control, role)
            else:
                messages.append(Message(role, super().decode(piece)))
        return messages


def _pieces(ids: Sequence[int]) -> list[tuple[int | None, list[int]]]:
    """Ids split at control ids: (control, []) for each of these, (None, bytes) for others."""
    parts: list[tuple[int | None, list[int]]] = []
    for one in ids:
        if one > 255:
            parts.append((one, []))
        elif parts and parts[-1][0] is None:
            parts[-1][1].append(one)
        else:
            parts.append((None, [one]))
    return parts


@dataclass(slots=True)
class _Dialogue:
    """One open dialogue: its messages so far, and its current turn."""

    messages: list[Message]
    draw: int
    stops: tuple[str, ...] = ()
    max_tokens: int = 0
    reply: Future[Reply] | None = None
    has_begun: bool = False
    """True once a turn of it was asked for."""


class EndpointGenerator:
    """Asks an endpoint for every turn of at most `concurrency` dialogues; then others begin.

    Dialogues that wait for their environment count, too: at the end of a budget, at most
    `concurrency` are half played.
    """

    def __init__(
        self, client: Client, codec: MessageCodec, *, temperature: float = 0.0, top_p: float = 1.0
    ) -> None:
        self.client = client
        self._codec = codec
        self._temperature = temperature
        self._top_p = top_p
        self._dialogues: dict[Handle, _Dialogue] = {}
        self._waiting: list[tuple[bool, Handle]] = []
        """A heap: dialogues that have begun come first."""
        self._numbers = itertools.count()

    def open(
        self, prompt_ids: Sequence[int], n: int, rng_keys: Sequence[int], experts: Experts = None
    ) -> list[Handle]:
        """See `Generator.open`. Keys distinguish the draws of one prompt; they are not sent."""
        handles = [Handle(next(self._numbers)) for _ in range(n)]
        for handle, key in zip(handles, rng_keys, strict=True):
            messages = self._codec.read_messages(prompt_ids)
            # Greedy answers are the same whatever the key.
            self._dialogues[handle] = _Dialogue(messages, key if self._temperature else 0)
        return handles

    def submit(
        self, handle: Handle, append_ids: Sequence[int], stops: Sequence[str], max_tokens: int
    ) -> None:
        """See `Generator.submit`; an observation is a message of the user."""
        dialogue = self._dialogues[handle]
        dialogue.messages += self._codec.read_messages(append_ids)
        dialogue.stops, dialogue.max_tokens = tuple(stops), max_tokens
        heapq.heappush(self._waiting, (not dialogue.has_begun, handle))

    def poll(self) -> list[FinishedTurn]:
        """See `Generator.poll`: waits until at least one reply is there."""
        self._start()
        pending = {d.reply: h for h, d in self._dialogues.items() if d.reply is not None}
        if not pending:
            return []
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        # In the order of their dialogues, whichever came first.
        return [self._finish(handle) for handle in sorted(pending[one] for one in done)]

    def close(self, handle: Handle) -> None:
        """See `Generator.close`."""
        dialogue = self._dialogues.pop(handle, None)
        if dialogue is not None and dialogue.reply is not None:
            dialogue.reply.cancel()

    def sync(self, policy: Any) -> int:
        """The weights are elsewhere."""
        return 0

    def _start(self) -> None:
        room = self.client.concurrency
        room -= sum(dialogue.has_begun for dialogue in self._dialogues.values())
        while self._waiting and (room > 0 or not self._waiting[0][0]):
            is_new, handle = heapq.heappop(self._waiting)
            dialogue = self._dialogues.get(handle)
            if dialogue is None:  # closed meanwhile
                continue
            room -= is_new
            dialogue.has_begun = True
            parts = (tuple(dialogue.messages), dialogue.max_tokens, dialogue.stops)
            request = Request(*parts, self._temperature, self._top_p, dialogue.draw)
            dialogue.reply = self.client.start(request)

    def _finish(self, handle: Handle) -> FinishedTurn:
        dialogue = self._dialogues[handle]
        pending, dialogue.reply = dialogue.reply, None
        assert pending is not None
        try:
            told = self.client.told(dialogue.stops)
            text, reason = read_turn(pending.result(), told, dialogue.stops)
        except (EndpointFailure, GenerationFailure) as error:
            return FinishedTurn(handle, (), None, TurnStop.EOS, version=0, error=error)
        dialogue.messages.append(Message("assistant", text))
        ids = self._codec.encode_model_text(text)
        if reason is TurnStop.EOS:
            ids.append(END)
        return FinishedTurn(handle, tuple(ids), None, reason, version=0)


def read_turn(reply: Reply, told: Sequence[str], stops: Sequence[str]) -> tuple[str, TurnStop]:
    """The text of a turn with its stop string, and why it ended.

    A server leaves the stop string out and says `stop` for it as well as for the end of a message.
    So the stop string is put back: the one that the server names, else the closing tag among `told`
    (those sent) of the last open tag. Text behind a stop string is cut.

    Raises:
        GenerationFailure: if the server withheld the answer.
    """
    if reply.finish is Finish.WITHHELD:
        raise GenerationFailure("the endpoint withheld this answer (finish_reason content_filter)")
    end = find_stop_end(reply.text, stops)
    if end is not None:
        return reply.text[:end], TurnStop.STOP_STRING
    if reply.finish is Finish.LENGTH:
        return reply.text, TurnStop.MAX_TOKENS
    if reply.finish is Finish.END:
        return reply.text, TurnStop.EOS
    stop = reply.stop if reply.stop in told else _left_open(reply.text, told)
    return (reply.text, TurnStop.EOS) if stop is None else (reply.text + stop, TurnStop.STOP_STRING)


def _left_open(text: str, stops: Sequence[str]) -> str | None:
    """The stop string that closes the last tag left open in a text; None: no tag is open."""
    stop_at: dict[int, str] = {}
    for stop in stops:
        if tag := _CLOSING.fullmatch(stop):
            stop_at[text.rfind(f"<{tag[1]}>")] = stop
    opened = max(stop_at, default=-1)
    return stop_at[opened] if opened >= 0 else None
