"""Chat completions on the wire: how a body is read into `talk`, and how replies are written.

Owns what each field means, and which values are refused because training would be wrong. Routes,
keys and sockets are `server`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from searchrl.api_client import redact
from searchrl_agents.talk import Called, Message, Refused, Reply, Request

MODEL = "policy"
"""Name of the trained policy."""

T = TypeVar("T")
_adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)  # making one is slow


class BadField(Refused):
    """A body that cannot be used; `param` is the place, such as `messages[0].content`."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param}: {message}" if param else message)
        self.param = param or None


def read_body(form: type[T], body: bytes) -> T:
    """A body in JSON as a value of `form`.

    Raises:
        BadField: with the first fault of the body, and where it is.
    """
    try:
        return redact(_adapter_of(form).validate_json(body))  # type: ignore[no-any-return]
    except ValidationError as error:
        fault = error.errors()[0]
        steps = (f"[{one}]" if isinstance(one, int) else f".{one}" for one in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise BadField("".join(steps).removeprefix("."), message) from error


def _only(allowed: Any, reason: str) -> BeforeValidator:
    def check(value: Any) -> Any:
        if value not in allowed:
            got = json.dumps(value, ensure_ascii=False)[:80]
            raise ValueError(f"{got} is not possible, because {reason}; leave it out")
        return value

    return BeforeValidator(check)


def _join_parts(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    texts: list[Any] = [p.get("text") for p in content if isinstance(p, dict)]
    if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
        raise ValueError("a part is not text, and the policy reads nothing else; leave it out")
    return "".join(texts)


def _check_tool(tool: Any) -> Any:
    """Return a tool as it was sent: the policy reads its keys in that order."""
    _Tool.model_validate(tool)
    return tool


class _Form(BaseModel, strict=True):
    """A JSON object: null is as absent, unknown fields are ignored, nothing is converted."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            raise ValueError("expected a JSON object")
        return {key: redact(value) for key, value in given.items() if value is not None}


class _Named(_Form):
    name: str = Field(min_length=1)


class _Function(_Named):
    arguments: Annotated[
        str, BeforeValidator(lambda a: json.dumps(a, ensure_ascii=False) if type(a) is dict else a)
    ] = "{}"
    parameters: Annotated[Any, _only([], "a call has its values in `arguments`")] = None


class _Call(_Form):
    id: str = ""
    function: _Function


class _Tool(_Form):
    type: Literal["function"]
    function: _Named


class _Message(_Form):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_join_parts)] = ""
    reasoning_content: str = ""
    reasoning: str = ""
    tool_calls: list[_Call] = []
    tool_call_id: str = ""


class _TemplateKwargs(_Form):
    enable_thinking: bool | None = None


_FULL = "the policy is trained on what it samples from its whole distribution, unchanged"
_FREE = "the policy must choose every token by itself"


class Chat(_Form):
    """The body of `POST /v1/chat/completions`."""

    messages: list[_Message] = Field(min_length=1)
    model: str = MODEL
    tools: list[Annotated[dict[str, Any], BeforeValidator(_check_tool)]] = []
    stop: Annotated[
        list[Annotated[str, Field(max_length=64)]],
        BeforeValidator(lambda s: [s] if isinstance(s, str) else s),
        Field(max_length=4),
    ] = []
    include_stop_str_in_output: bool = False
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int = Field(1, ge=1, le=16)
    temperature: float | None = None
    logprobs: bool = False
    stream: bool = False
    stream_options: dict[str, Any] = {}
    chat_template_kwargs: _TemplateKwargs = _TemplateKwargs()
    tool_choice: Annotated[Any, _only(["auto", "none"], _FREE)] = "auto"
    response_format: Annotated[Any, _only([{"type": "text"}], _FREE)] = None
    top_p: Annotated[Any, _only([1], _FULL)] = None
    logit_bias: Annotated[Any, _only([{}], _FULL)] = None
    presence_penalty: Annotated[Any, _only([0], _FULL)] = None
    frequency_penalty: Annotated[Any, _only([0], _FULL)] = None
    functions: Annotated[Any, _only([[]], "`tools` took its place")] = None

    def to_request(self, temperature: float, key: str, is_again: bool) -> Request:
        """Return the request to a policy that samples at `temperature`.

        Raises:
            BadField: if another model or another temperature is wanted.
        """
        if self.model == "base":
            text = f"only the trained policy is here; name '{MODEL}', and ask 'base' elsewhere"
            raise BadField("model", text)
        # A greedy run is an evaluation, and trains nothing.
        if temperature and self.temperature not in (None, temperature):
            text = f"{self.temperature} is not that of the run, {temperature}; leave it out"
            raise BadField("temperature", text)
        limits = [one for one in (self.max_tokens, self.max_completion_tokens) if one is not None]
        return Request(
            messages=tuple(
                Message(
                    role="system" if one.role == "developer" else one.role,
                    content=one.content,
                    reasoning=one.reasoning_content or one.reasoning,
                    calls=tuple(
                        Called(call.id, call.function.name, call.function.arguments)
                        for call in one.tool_calls
                    ),
                    call_id=one.tool_call_id,
                )
                for one in self.messages
            ),
            tools=() if self.tool_choice == "none" else tuple(self.tools),
            stops=tuple(stop for stop in self.stop if stop),
            max_tokens=min(limits, default=None),
            count=self.n,
            thinking=self.chat_template_kwargs.enable_thinking,
            keeps_stop=self.include_stop_str_in_output,
            key=key,
            is_again=is_again,
        )


class Answer(_Form):
    """The body of `POST /v1/searchrl/answer`."""

    answer: str


class Reward(_Form):
    """The body of `POST /v1/searchrl/reward`."""

    reward: float = Field(allow_inf_nan=False)


def write_completion(chat: Chat, replies: Sequence[Reply]) -> dict[str, Any]:
    """The replies as one `chat.completion`."""
    prompt, sampled = replies[0].num_prompt, sum(len(reply.ids) for reply in replies)
    total = prompt + sampled
    return {
        "id": replies[0].id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [
            {
                "index": index,
                "message": _write_message(reply),
                "logprobs": _write_logprobs(reply) if chat.logprobs else None,
                "finish_reason": reply.finish_reason,
            }
            for index, reply in enumerate(replies)
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": total},
    }


def write_events(chat: Chat, replies: Sequence[Reply]) -> str:
    """The replies as server-sent events, each part of a message in one chunk."""
    head = {**write_completion(chat, replies), "object": "chat.completion.chunk"}
    choices, usage = head.pop("choices"), head.pop("usage")
    chunks: list[dict[str, Any]] = []
    for choice in choices:
        for part, value in choice.pop("message").items():
            if part == "tool_calls":
                value = [{"index": index, **call} for index, call in enumerate(value)]
            delta = {"index": choice["index"], "delta": {part: value}, "finish_reason": None}
            chunks.append({**head, "choices": [delta]})
        chunks.append({**head, "choices": [{**choice, "delta": {}}]})
    if chat.stream_options.get("include_usage"):
        chunks.append({**head, "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def _write_message(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    message["content"] = reply.content or (None if reply.calls else "")
    if reply.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in reply.calls
        ]
    return message


def _write_logprobs(reply: Reply) -> dict[str, Any]:
    """Log-probs of every sampled token, as `usage` counts them: of reasoning and calls, too.

    The bytes join to the text: a character of several tokens is in the last of them.
    """
    text, at, starts = reply.text or reply.content, 0, []
    for token in reply.tokens:
        place = -1 if "\N{REPLACEMENT CHARACTER}" in token else text.find(token, at)
        starts.append(max(place, at))
        at = starts[-1] + len(token) * (place >= 0)
    starts[:1] = [0]
    pieces = (text[start:stop] for start, stop in pairwise([*starts, len(text)]))
    content = [
        {
            "token": token,
            "logprob": max(-9999.0, logp),  # as others write what JSON cannot
            "bytes": list(piece.encode()),
            "top_logprobs": [],
        }
        for token, logp, piece in zip(reply.tokens, reply.logps, pieces, strict=False)
    ]
    return {"content": content}
