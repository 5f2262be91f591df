"""What is asked of an endpoint and what comes back: plain records, whatever the wire looks like.

Owns no behaviour but the sentences about what is spent. `wire` turns a request into a body and a
body into a reply, `client` sends it. Standard library only. Callers: whoever asks models over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Api(StrEnum):
    """Which of the two OpenAI interfaces a server is asked through."""

    CHAT = "chat"
    """`POST /chat/completions`: a list of messages."""
    COMPLETIONS = "completions"
    """`POST /completions`: one text that the model goes on with."""


class Role(StrEnum):
    """Who wrote a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Finish(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    """At a stop string, or because its message was over: the interface does not tell which."""
    END = "end"
    """Because its message was over: the server says so."""
    LENGTH = "length"
    """At `max_tokens`."""
    WITHHELD = "withheld"
    """The server refused to show what was written (`content_filter`)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model.

    `max_tokens` bounds the answer. `draw` numbers the draws of one question where several are
    wanted: it is not sent, but the cache keeps the draws apart. `schema` is the JSON schema that
    the answer must follow, of servers that know `response_format`.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    stops: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    draw: int = 0
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counts them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model wrote.

    `stop` is the stop string that ended it, if the server says so. Servers leave that string out of
    `text`. `usage` is None if the server counts no tokens.
    """

    text: str
    finish: Finish
    stop: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a client has sent so far. `calls` counts every HTTP request, those repeated among them.

    `cached` counts requests that the cache answered, `failed` those that got no answer. `uncounted`
    are the replies of which the server did not say the tokens: they are in no other count. `cost`
    is in the currency of the prices, None if there are none. `unkept` replies could not be written
    to the cache; `fault` says why.
    """

    calls: int = 0
    retries: int = 0
    cached: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    cost: float | None = None
    unkept: int = 0
    fault: str = ""


def describe_traffic(traffic: Traffic) -> str:
    """What a client was asked and what it cost, in one line."""
    tokens = traffic.prompt_tokens + traffic.completion_tokens
    parts = [f"{_count(traffic.calls, 'call')} ({traffic.retries} repeated)"]
    parts.append(f"{_count(traffic.cached, 'reply', 'replies')} from the cache")
    if tokens or not traffic.uncounted:
        parts.append(f"{tokens:,} tokens")
    if traffic.uncounted:
        uncounted = _count(traffic.uncounted, "reply", "replies")
        parts.append(f"{uncounted} whose tokens it did not count")
    if traffic.failed:
        parts.append(f"{_count(traffic.failed, 'request')} without an answer")
    if traffic.cost is not None:
        least = "at least " if traffic.uncounted else ""
        parts.append(f"cost {least}{traffic.cost:.4f}")
    if traffic.unkept:
        unkept = _count(traffic.unkept, "reply", "replies")
        parts.append(f"{unkept} not kept: {traffic.fault}")
    return ", ".join(parts)


def describe_estimate(told: Traffic) -> str:
    """What asking would cost, in one line."""
    tokens = told.prompt_tokens + told.completion_tokens
    cost = "" if told.cost is None else f", cost about {told.cost:.4f}"
    return f"about {_count(told.calls, 'call')}, {tokens:,} tokens{cost}"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
