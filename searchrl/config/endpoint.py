"""The section `endpoint`: how an OpenAI-compatible server is asked, and how a policy names one.

It holds no key of an account, only the name of the environment variable that does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from searchrl.config.sections import AUTO, Count, Seconds, Section, Weight
from searchrl.contracts.settings import FilePath, NeedsTrust, VariableName
from searchrl.errors import suggest

MODEL = "model"
"""The policy that is a language model here: the one that `model.name` names."""
_SCRIPTED, _ENDPOINT = "scripted", "endpoint:"


def endpoint_address(policy: str) -> str | None:
    """The address of the endpoint that a `policy` setting names; None if it names none."""
    return policy.removeprefix(_ENDPOINT) if policy.startswith(_ENDPOINT) else None


def _known(policy: str) -> str:
    is_script = policy.partition(":")[0] == _SCRIPTED
    if policy != MODEL and not is_script and endpoint_address(policy) is None:
        raise ValueError(
            f"unknown policy {policy!r}: expected model, scripted, scripted:NAME or endpoint:URL; "
            "a model of yours is named by --model."
            + suggest(policy.partition(":")[0], (MODEL, _SCRIPTED, "endpoint"))
        )
    return policy


PolicyName = Annotated[str, AfterValidator(_known)]


_OFF = "off"
_OURS = ("model", "messages", "prompt", "stream", "n")
"""Keys of a body that `extra` does not change: who is asked, what, and how the answer is read."""
_NAMES = (
    r"[^\"]*(?:api|access|auth|private|subscription)[-_]?key|[^\"]*(?:authorization|passw|secret"
    r"|credential|cookie)[^\"]*|(?:[^\"]*(?:api|access|auth|bearer|hf|id|refresh|session)[-_]?)?token"
)
_SECRET = re.compile(
    rf'"({_NAMES})": \[*"[^"]|"([^"]*headers)": {{"'
    r'|"([^"]*)": \[*"(?:Bearer \S+"|(?:sk-|gsk_|hf_|ghp_|xai-|AIza)[\w-]{12})',
    re.IGNORECASE,
)
"""In JSON: the name of a secret, or of headers; or any name of a text that looks like a secret."""


class EndpointConfig(Section):
    """Requests to an OpenAI-compatible endpoint, for `--policy endpoint:URL --model NAME`."""

    api: Literal["chat", "completions"] = "chat"
    """`chat` sends messages to `/chat/completions`: the instruction, the question, then turns and
    observations in alternation. `completions` sends one text to `/completions`, in which
    observations stand inline as in training; for models without a chat template."""
    key_env: Annotated[VariableName, Field(min_length=1)] = "SEARCHRL_API_KEY"
    """The environment variable that holds the key; without it, none is sent. The key itself is
    never written, logged or shown."""
    concurrency: Count = 8
    """Episodes played at the same time, and requests under way at the same time."""
    timeout_s: Seconds = 120.0
    """Seconds until a request without a whole answer counts as failed, its repetitions included."""
    max_retries: Annotated[int, Field(ge=0)] = 4
    """Repetitions of a call that lost its connection, or met a busy or broken server, with growing
    random waits, or as long as the server asks, up to two minutes. What then has no answer is
    unscored."""
    max_calls: Annotated[int, Field(ge=0)] | None = None
    """HTTP requests that may be sent, repetitions among them; null: no limit. When this limit, or
    one of the next two, is reached, no more is sent. Episodes that were not over are unscored and
    counted, and the table shows the others."""
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that may be spent, prompts and answers together, as the server counts them. Calls
    under way when it is reached are still paid for. A server that does not count is left."""
    max_cost: Weight | None = None
    """Limit of the cost in the currency of the prices, which it needs; else as `max_tokens`."""
    prompt_price: Weight | None = None
    """Price of a million prompt tokens. With both prices, the cost is shown and recorded."""
    completion_price: Weight | None = None
    """Price of a million tokens of answers."""
    cache: Annotated[FilePath, Field(min_length=1)] = "auto"
    """SQLite file in which every reply is kept, so that an evaluation that is repeated sends
    nothing. `auto`: a file in your own cache folder; `off`: none."""
    extra: Annotated[dict[str, Any], NeedsTrust("the text")] = Field(default_factory=dict)
    """Keys that are added to every body, such as `{reasoning_effort: low}`; null takes one out:
    `{max_tokens: null, max_completion_tokens: 2000, stop: null}` for models that refuse the usual
    ones."""

    @property
    def has_cache(self) -> bool:
        """True if replies are kept."""
        return self.cache != _OFF

    @property
    def cache_path(self) -> Path | None:
        """The file that `cache` names; None: the one in the user's own cache folder."""
        return None if self.cache == AUTO else Path(self.cache).expanduser()

    @field_validator("cache", mode="before")
    @classmethod
    def _is_off(cls, value: Any) -> Any:
        return _OFF if value is False else value  # YAML reads `off` as false

    @field_validator("extra")
    @classmethod
    def _is_json(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := [key for key in _OURS if key in value]:
            raise ValueError(f"{taken[0]!r} is not for you to set: SearchRL writes it")
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"expected what JSON can say: {error}") from None
        if match := _SECRET.search(text):
            raise PydanticCustomError(
                "secret",
                "its key '{name}' is a secret or a header, and this setting is sent in the body "
                "and written into run folders; put the secret into an environment variable and "
                "name that: endpoint.key_env=NAME",
                {"name": next(filter(None, match.groups()))},
            )
        return value

    @model_validator(mode="after")
    def _has_prices(self) -> Self:
        prices = (self.prompt_price, self.completion_price)
        if None in prices and (self.max_cost is not None or any(p is not None for p in prices)):
            raise ValueError(
                "a cost needs both prices: set endpoint.prompt_price and endpoint.completion_price "
                "(per million tokens; 0 if they are free)"
            )
        return self
