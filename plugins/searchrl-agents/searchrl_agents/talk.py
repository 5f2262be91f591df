"""Messages between an agent and the policy, independent of the wire.

Owns the request and the reply between the server, which knows HTTP, and a rollout, which knows
tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Called:
    """A tool call in a reply, or in a message that repeats one. `arguments` is JSON as written."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `role` is system, user, assistant or tool (`developer` was read as system)."""

    role: str
    content: str = ""
    """Parts of text are joined; null is empty."""
    reasoning: str = ""
    """The `reasoning_content` that a client sent back in an assistant's message."""
    calls: tuple[Called, ...] = ()
    call_id: str = ""
    """Call that a tool's message answers."""


@dataclass(frozen=True, slots=True)
class Request:
    """Asks for the next message of the policy."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """As sent: `{"type": "function", "function": {…}}`. None if `tool_choice` is none."""
    stops: tuple[str, ...] = ()
    max_tokens: int | None = None
    """Tokens of the reply, at most; None: as many as the run allows."""
    count: int = 1
    """Number of replies."""
    thinking: bool | None = None
    """True if the chat template lets the policy think; None: as the run says."""
    keeps_stop: bool = False
    """True if the stop string that ended a reply is part of its content."""
    key: str = ""
    """Key of the content: equal for equal requests."""
    is_again: bool = False
    """True if the client says that it repeats a request without an answer."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the policy, with what was sampled for it."""

    id: str
    content: str
    reasoning: str
    calls: tuple[Called, ...]
    finish_reason: str
    """`stop`, `length` or `tool_calls`."""
    ids: tuple[int, ...]
    """Every sampled id, the closing one included."""
    logps: tuple[float, ...]
    """Log-prob of each id, at the temperature of the run over the full vocabulary."""
    tokens: tuple[str, ...]
    """The text of each id."""
    num_prompt: int
    """Tokens that the policy had read."""
    text: str = ""
    """The whole text as sampled; empty: it equals the content."""


class Refused(Exception):
    """A request that gets no reply. `status` is HTTP's, `code` a word for programs."""

    def __init__(self, message: str, status: int = 400, code: str = "invalid_request_error"):
        super().__init__(message)
        self.status, self.code = status, code
