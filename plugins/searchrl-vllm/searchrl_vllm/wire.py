"""Messages to and from vLLM: bodies of requests, replies, and failures that may pass.

A turn is `POST /inference/v1/generate`: ids in; ids, log-probs and the label of the weights out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx2

from searchrl import ConfigError, GenerationFailure, show_value

KNOWN_VERSIONS = ("0.32.0",)
"""Versions of vLLM that the tests of this package ran with."""

_NOT_A_NUMBER = -9999.0
"""Number that vLLM gives in place of a log-prob that is not finite."""


class ServerLost(Exception):
    """The server is gone, or another one is in its place: start it, send the weights, ask again."""


class ServerHangs(ServerLost):
    """It did not answer in time, although it may say that it is well."""


class Reply(NamedTuple):
    """The answer to one request. `labels` are those of the weights that sampled the ids."""

    ids: list[int]
    logps: list[float]
    labels: set[str]


def request_body(
    model: str,
    ids: Sequence[int],
    *,
    stops: Sequence[str],
    eos_ids: Sequence[int],
    max_tokens: int,
    temperature: float,
    seed: int,
) -> dict[str, Any]:
    """A request for at most `max_tokens` more tokens.

    The stop strings only tell vLLM where to pause; see `generator`. Its own end of a message is
    switched off, because the policy's ends are sent.
    """
    sampling = {
        "temperature": temperature,
        "max_tokens": max_tokens,
        "seed": seed,
        "logprobs": 0,  # of the sampled token alone
        "stop": list(stops),
        "stop_token_ids": list(eos_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    return {"model": model, "token_ids": list(ids), "sampling_params": sampling}


def read_reply(said: Any) -> Reply:
    """Parse a reply.

    Raises:
        GenerationFailure: a log-prob is not finite, or the reply has another form.
    """
    try:
        (choice,) = said["choices"]
        ids = [int(one) for one in choice["token_ids"]]
        logps = [float(one["logprob"]) for one in choice["logprobs"]["content"]]
        labels = {str(one["version"]) for one in choice["weight_versions"]}
    except (KeyError, TypeError, ValueError) as error:
        raise GenerationFailure(
            f"vLLM replied {show_value(said)}; expected ids, log-probs and weight_versions, as "
            f"vLLM {' or '.join(KNOWN_VERSIONS)} sends them: install that version"
        ) from error
    if choice["finish_reason"] not in ("stop", "length") or not ids or len(ids) != len(logps):
        raise ServerLost(f"vLLM broke a request off ({choice['finish_reason']})")
    if min(logps) <= _NOT_A_NUMBER:
        raise GenerationFailure(
            "vLLM sampled from non-finite logits. In half precision large activations overflow: "
            "--set model.dtype=float32; else the weights themselves are damaged"
        )
    return Reply(ids, logps, labels)


async def ask(client: httpx2.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    """Send a request and return the JSON of the answer (None: it has none).

    Raises:
        ServerLost: no answer, or one that another try may better.
        ConfigError: the key is wrong.
        GenerationFailure: vLLM refuses; the text is its own.
    """
    try:
        answer = await client.request(method, path, json=body)
    except httpx2.TimeoutException as error:
        raise ServerHangs(f"vLLM did not answer in time ({type(error).__name__})") from error
    except httpx2.TransportError as error:
        raise ServerLost(f"vLLM does not answer ({type(error).__name__}: {error})") from error
    if answer.status_code == 200:
        is_json = answer.headers.get("content-type") == "application/json"
        return answer.json() if is_json and answer.content else None
    said = f"{path} of vLLM answered {answer.status_code}: {answer.text[:500]}"
    if answer.status_code == 401:
        raise ConfigError(
            f"{said}. Set SEARCHRL_VLLM_KEY to the value that the server was started with"
        )
    if answer.status_code >= 500 or "does not exist" in answer.text:
        raise ServerLost(said)
    raise GenerationFailure(said)
