"""The OpenAI interface on the wire: bodies of requests, and what is read from replies.

Owns the two forms, chat and completions, and the check of everything a server sends. Whatever is
not as the interface says becomes an `EndpointFailure` that quotes it. Sends nothing. Source: the
OpenAI API reference. Caller: `client`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from searchrl.endpoints.exchange import Api, Finish, Message, Reply, Request, Role, Usage
from searchrl.endpoints.transport import ensure_address
from searchrl.errors import EndpointFailure

MAX_STOPS = 4
"""Stop strings that the interface takes; the caller cuts at all of them in any case."""

_PATHS = {Api.CHAT: "/chat/completions", Api.COMPLETIONS: "/completions"}
_STOPS = ("stop_reason", "matched_stop")
_FINISHES = {"length": Finish.LENGTH, "content_filter": Finish.WITHHELD}
_LARGEST = 2**40
"""Tokens of one answer, at most: no more than what a sum of them can hold."""


def endpoint_url(base: str, api: Api, section: str = "endpoint") -> str:
    """The address to post to: the base, such as `http://localhost:8000/v1`, and the path.

    `section` is where its settings stand, for messages.

    Raises:
        ConfigError: if the base is no http address, or holds a name, password or query.
    """
    ensure_address(base, "an endpoint", "http://localhost:8000/v1", section)
    root = base.rstrip("/")
    for path in _PATHS.values():  # a whole address, of either interface
        root = root.removesuffix(path)
    return root + _PATHS[api]


def make_body(model: str, api: Api, request: Request, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request. `extra` replaces or adds keys; null takes one out."""
    body: dict[str, Any] = {"model": model}
    if api is Api.CHAT:
        body["messages"] = [
            {"role": str(message.role), "content": message.content} for message in request.messages
        ]
    else:
        body["prompt"] = write_prompt(request.messages)
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


def write_prompt(messages: tuple[Message, ...]) -> str:
    """Messages as one text: instruction, blank line, question, then everything as it was written.

    It is how a model without a chat template is asked: what comes after the question is inline.
    """
    head = [m.content for m in messages[:2] if m.role in (Role.SYSTEM, Role.USER)]
    rest = messages[len(head) :]
    return "\n\n".join(head) + "\n" + "".join(message.content for message in rest)


def read_reply(api: Api, answer: Any) -> Reply:
    """The reply in a decoded JSON answer.

    Raises:
        EndpointFailure: if it is not what the interface says; whose answer it is, is left to say.
    """
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        raise EndpointFailure(f"sent no choice: {answer}")
    text = choice.get("text")
    if api is Api.CHAT:
        message = choice.get("message")
        if not isinstance(message, Mapping):
            raise EndpointFailure(f"sent no message: {answer}")
        # It is null where the model only called a tool, or only thought.
        text = message.get("content") or ""
    if not isinstance(text, str):
        raise EndpointFailure(f"sent no text: {answer}")
    # vLLM has `stop_reason`, SGLang `matched_stop`: the stop string, or the id of the last token.
    stop = next((choice[key] for key in _STOPS if choice.get(key) is not None), None)
    reason = choice.get("finish_reason")
    finish = Finish.END if isinstance(stop, int) else Finish.STOP
    finish = _FINISHES.get(reason, finish) if isinstance(reason, str) else finish
    return Reply(
        text.encode("utf-8", "replace").decode("utf-8"),
        finish,
        stop if isinstance(stop, str) else None,
        _read_usage(answer.get("usage")),
    )


def _read_usage(usage: Any) -> Usage | None:
    """The tokens that were used; None if the server does not say, or says nonsense."""
    if not isinstance(usage, Mapping):
        return None
    prompt, completion = (usage.get(key) for key in ("prompt_tokens", "completion_tokens"))
    if _is_count(prompt) and _is_count(completion):
        return Usage(prompt, completion)
    return None


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST
