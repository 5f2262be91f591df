"""The OpenAI interface, chat and completions: requests, replies, and both as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from searchrl.errors import EndpointFailure

MAX_STOPS = 4
"""Stop strings that the interface takes; the caller cuts at all of them in any case."""
PATHS = {"chat": "/chat/completions", "completions": "/completions"}


class Finish(StrEnum):
    """The reason why a model stopped writing."""

    STOP = "stop"  # at a stop string, or its message was over: the interface does not tell which
    END = "end"  # its message was over: the server says so
    LENGTH = "length"
    WITHHELD = "content_filter"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a dialogue."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model, of at most `max_tokens` in the answer.

    `draw` numbers the draws of one question: it is not sent, but the cache keeps them apart.
    `schema` is the JSON schema of the answer, for servers that know `response_format`.
    """

    messages: tuple[Message, ...]
    max_tokens: int
    stops: tuple[str, ...] = ()
    temperature: float = 0.0
    top_p: float = 1.0
    draw: int = 0
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a model.

    `stop` is the stop string that ended it, if the server says so. Servers leave that string out of
    `text`. `usage` is (prompt tokens, tokens of the answer); None if the server counts none.
    """

    text: str
    finish: Finish
    stop: str | None = None
    usage: tuple[int, int] | None = None


def make_body(model: str, api: str, request: Request, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request. `extra` replaces or adds keys; null takes one out."""
    body: dict[str, Any] = {"model": model}
    if api == "chat":
        body["messages"] = [asdict(message) for message in request.messages]
    else:
        # One text: instruction, blank line, question, then everything as it was written.
        head = [m.content for m in request.messages[:2] if m.role != "assistant"]
        rest = [m.content for m in request.messages[len(head) :]]
        body["prompt"] = "\n\n".join(head) + "\n" + "".join(rest)
    body |= {"max_tokens": request.max_tokens, "temperature": request.temperature}
    if request.top_p < 1:
        body["top_p"] = request.top_p
    if request.stops:
        body["stop"] = list(request.stops[:MAX_STOPS])
    if request.schema is not None:
        named = {"name": "reply", "strict": True, "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    body |= extra
    return {key: value for key, value in body.items() if value is not None}


def read_reply(api: str, answer: Any) -> Reply:
    """The reply in a decoded JSON answer; `EndpointFailure` if it is not as the interface says."""
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, Mapping) and api == "chat" else choice
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise EndpointFailure(f"sent no message: {answer}")
    # In a message it is null where the model only called a tool, or only thought.
    text = (message.get("content") or "") if api == "chat" else choice.get("text")
    if not isinstance(text, str):
        raise EndpointFailure(f"sent no text: {answer}")
    # vLLM has `stop_reason`, SGLang `matched_stop`: the stop string, or the id of the last token.
    told = (choice[key] for key in ("stop_reason", "matched_stop") if choice.get(key) is not None)
    stop, finish = next(told, None), Finish.STOP
    if choice.get("finish_reason") in ("length", "content_filter"):
        finish = Finish(choice["finish_reason"])
    elif isinstance(stop, int):
        finish = Finish.END
    usage = answer.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    counts: Any = usage.get("prompt_tokens"), usage.get("completion_tokens")
    return Reply(
        text.encode("utf-8", "replace").decode("utf-8"),
        finish,
        stop if isinstance(stop, str) else None,
        counts if all(type(count) is int and 0 <= count < 2**40 for count in counts) else None,
    )
