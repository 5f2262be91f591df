"""Posting JSON to one server, again where that may help; no secret is in a message or an answer."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from searchrl.errors import ConfigError, EndpointFailure
from searchrl.trust.secrets import MADE_UP, keep_secret, redact

if TYPE_CHECKING:
    import httpx2

_HOPELESS = frozenset({401, 402, 404, 405})
"""Statuses that every other request would get, too: the key, the bill or the address is wrong."""


class Refused(EndpointFailure):
    """A server answered, and not with what was asked for; `status` is what it answered."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def read_key(variable: str) -> str | None:
    """The key in an environment variable; None if there is none, `ConfigError` for an odd one.

    From then on it is a secret, which `redact` takes out of texts.
    """
    key = os.environ.get(variable, "").strip()
    keep_secret(key)
    if 0 < len(key) < 6 and key != MADE_UP:
        warnings.warn(
            f"the key in {variable} is short: wherever an answer has it, it becomes [key]. For a "
            f"server that wants none, set {MADE_UP}",
            stacklevel=2,
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the environment variable {variable} holds no key: no HTTP header may have a "
            "character in it; copy the key again"
        )
    return key or None


class Server:
    """Takes JSON at one address and answers with JSON; safe to use from several threads.

    Args:
        url: the address.
        section: name of the section of its settings, for messages: `endpoint`, `retriever`.
        key: sent as `Authorization: Bearer KEY`, or as it is if it has two words (`Basic …`).
        timeout_s: time limit of a request, with all its tries.
        max_retries: tries after the first, of what may pass: a lost connection, a busy server.
        concurrency: requests under way at the same time; more wait.
        advice: remedies by status, for messages.
        max_bytes: bytes of an answer, at most.

    A wrong address is a `ConfigError`.
    """

    def __init__(
        self,
        url: str,
        section: str,
        *,
        key: str | None = None,
        timeout_s: float = 120.0,
        max_retries: int = 4,
        concurrency: int = 8,
        advice: tuple[tuple[int, str], ...] = ((404, "look at the address"),),
        max_bytes: int = 32 * 2**20,
    ) -> None:
        from openai import OpenAI

        from searchrl.api_client.transport import Wire

        _ensure_address(url, section)
        self.url = url
        self._section, self._timeout_s, self._advice = section, timeout_s, dict(advice)
        keep_secret(key or "")
        header = "" if key is None else key if " " in key else f"Bearer {key}"
        # Nothing is left out: the library would read it from the environment.
        self._client = OpenAI(
            api_key="sent by the wire",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=url,
            max_retries=max_retries,
            http_client=Wire(header, max_bytes, concurrency),
        )
        self._slots = threading.BoundedSemaphore(concurrency)
        self._refused: Refused | None = None

    def post(self, body: Any, before: Callable[[bool], None] = lambda is_retry: None) -> Any:
        """Send a body, again where that may help; the decoded JSON of the answer."""
        from httpx2 import Response
        from openai import APIConnectionError, APIStatusError

        from searchrl.api_client.transport import ASKING, Asking, Ended

        with self._slots:
            if self._refused is not None:
                raise Refused(str(self._refused), self._refused.status)
            limit = f"{self._timeout_s:g} s ({self._section}.timeout_s)"
            late = f"{self.url} did not answer within {limit}"
            asking = Asking(time.monotonic() + self._timeout_s, before, late)
            ASKING.set(asking)
            try:
                content = self._client.post(self.url, body=body, cast_to=Response).content
            except Ended as ended:
                raise ended.error from None
            except APIStatusError as error:
                raise self._refusal(error.response, asking.num_tries) from None
            except APIConnectionError as error:
                cause = f"{quote(error.__cause__ or error)}{_times(asking.num_tries)}"
                raise EndpointFailure(f"{self.url} cannot be reached: {cause}") from None
            try:
                return redact(json.loads(content))  # it is kept, shown and put into rows
            except (ValueError, RecursionError):
                quoted = quote(content.decode("utf-8", "replace"))
                raise EndpointFailure(f"{self.url} sent no JSON: {quoted}") from None

    def _refusal(self, answer: httpx2.Response, num_tries: int) -> Refused:
        status, quoted = answer.status_code, quote(answer.text)
        told = answer.extensions["status"]  # 200, if its body is an error
        text = f"{self.url} answered {told}{': ' * bool(quoted)}{quoted}{_times(num_tries)}"
        if 300 <= status < 400:
            text += "; it sends us elsewhere, and no key is carried there: name the new address"
        elif advice := self._advice.get(status):
            text += f"; {advice}"
        elif status in (401, 403):
            variable = f"{self._section}.key_env"
            text += f"; the key is read from the environment variable that {variable} names"
        elif wait := answer.headers.get("retry-after"):
            text += f"; it asks to wait {quote(wait)} s"
        refused = Refused(text, status)
        self._refused = refused if status in _HOPELESS else None
        return refused


def _times(number: int) -> str:
    return f" ({number} times)" if number > 1 else ""


def quote(value: object) -> str:
    """A piece of what a server sent, short enough for an error."""
    text = " ".join(redact(str(value)).split())
    return text if len(text) <= 300 else f"{text[:300]} …"


def _ensure_address(url: str, section: str) -> None:
    """Refuse what is no plain address; it is not quoted, for it may hold a key."""
    with suppress(ValueError):  # an odd port
        parts = urlsplit(url)
        secrets = (parts.username, parts.password, parts.query, parts.fragment)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        # Python would leave out line feeds, and read another address.
        if is_http and not any(secrets) and url.isprintable() and " " not in url:
            return
    raise ConfigError(
        f"{section}: this is no address of a server; expected one such as "
        "http://localhost:8000/v1, without name, password or query, because it is written "
        f"into run folders; a key belongs in an environment variable ({section}.key_env)"
    )
