"""Posting JSON to one server, again where that may help: what all our HTTP clients share.

Owns what an address and a key may be, how failures are told, and a server that refuses everything
and is not asked again. Nothing that leaves it holds the key, neither a text nor an answer. The
official `openai` client repeats, waits as the server asks, and keeps connections; its wire is
`transport`. Knows no model and no corpus.
"""

from __future__ import annotations

import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from searchrl.errors import ConfigError, EndpointFailure

if TYPE_CHECKING:
    import httpx2

HOPELESS = frozenset({401, 402, 404, 405})
"""Statuses that every other request would get, too: the key, the bill or the address is wrong."""
MAX_BYTES = 32 * 2**20
"""Bytes of an answer, at most: more than a batch of passages."""
_QUOTED = 300
"""Characters of an answer that are quoted in an error, at most."""
_SECRET_CHARS = 12
"""Characters of a real key, at least: `EMPTY`, made up for a server of your own, is also a word."""


class Refused(EndpointFailure):
    """A server answered, and not with what was asked for; `status` is what it answered."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def read_key(variable: str) -> str | None:
    """The key in an environment variable, without white space around it; None if there is none.

    Raises:
        ConfigError: if no header may hold it; it is not shown.
    """
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the environment variable {variable} holds no key: there is a line break, or another "
            "character in it that no HTTP header may have; copy the key again"
        )
    return key or None


class Server:
    """Takes JSON at one address and answers with JSON; safe to use from several threads.

    Args:
        url: the address.
        section: where its settings stand, for messages: `endpoint`, `retriever`.
        key: sent as `Authorization: Bearer KEY`, or as it is if it has two words (`Basic …`).
        timeout_s: time limit of a request, with all its tries.
        max_retries: tries after the first, of what may pass: a lost connection, a busy server.
        concurrency: requests under way at the same time; more wait.
        advice: what to do about a status, for messages.
        max_bytes: bytes of an answer, at most.

    Raises:
        ConfigError: for a wrong address.
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
        max_bytes: int = MAX_BYTES,
    ) -> None:
        from openai import OpenAI

        from searchrl.api_client.transport import Wire

        _ensure_address(url, section)
        self.url = url
        self._section, self._timeout_s, self._advice = section, timeout_s, dict(advice)
        secrets = (key or "", (key or "").rpartition(" ")[2])
        self._secrets = [secret for secret in secrets if len(secret) >= _SECRET_CHARS]
        header = "" if key is None else key if " " in key else f"Bearer {key}"
        wire = Wire(header, max_bytes, concurrency)
        # Nothing is left out: the library would read it from the environment.
        self._client = OpenAI(
            api_key="sent by the wire",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=url,
            max_retries=max_retries,
            http_client=wire,
        )
        weakref.finalize(self, wire.close)
        self._slots = threading.BoundedSemaphore(concurrency)
        self.refused: Refused | None = None
        """Why nothing more is sent."""

    @classmethod
    def shared(cls, url: str, section: str, **settings: Any) -> Server:
        """The server that others use with the same settings, or a new one."""
        asked = (url, section, *sorted(settings.items()))
        with _lock:
            server = _servers.get(asked)
            # One that refused everything may have been put right since: a new caller asks it.
            if server is None or server.refused is not None:
                _servers[asked] = server = cls(url, section, **settings)
            return server

    def post(self, body: Any, before: Callable[[bool], None] = lambda is_retry: None) -> Any:
        """Send a body, again where that may help; the decoded JSON of the answer.

        `before(is_retry)` is called before each try; what it raises ends the matter.

        Raises:
            Refused: if the server finds fault with the request.
            EndpointFailure: if there is no answer, or none that is JSON.
        """
        from httpx2 import Response
        from openai import APIConnectionError, APIStatusError

        from searchrl.api_client.transport import ASKING, Asking, Ended

        with self._slots:
            if self.refused is not None:
                raise Refused(str(self.refused), self.refused.status)
            limit = f"{self._timeout_s:g} s ({self._section}.timeout_s)"
            late = f"{self.url} did not answer within {limit}"
            asking = Asking(time.monotonic() + self._timeout_s, before, late)
            ASKING.set(asking)
            failure: EndpointFailure
            try:
                answer = self._client.post(self.url, body=body, cast_to=Response)
            except Ended as ended:
                raise ended.error from None
            except APIStatusError as error:
                failure = self._refusal(error.response, asking.num_tries)
            except APIConnectionError as error:
                said = quote(self._hide(str(error.__cause__ or error)))
                failure = EndpointFailure(
                    f"{self.url} cannot be reached: {said}{_times(asking.num_tries)}"
                )
            else:
                return self._decode(answer.content)
            raise failure

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _refusal(self, answer: httpx2.Response, num_tries: int) -> Refused:
        """What a status other than 200 means."""
        status, said = answer.status_code, quote(self._hide(answer.text))
        text = f"{self.url} answered {status}" + (f": {said}" if said else "") + _times(num_tries)
        if 300 <= status < 400:
            text += "; it sends us elsewhere, and no key is carried there: name the new address"
        elif advice := self._advice.get(status):
            text += f"; {advice}"
        elif status in (401, 403):
            variable = f"{self._section}.key_env"
            text += f"; the key is read from the environment variable that {variable} names"
        elif wait := answer.headers.get("retry-after"):
            text += f"; it asks to wait {wait} s"
        refused = Refused(text, status)
        if status in HOPELESS:
            self.refused = refused
        return refused

    def _decode(self, content: bytes) -> Any:
        try:
            answer = json.loads(content)
            # It is kept, shown and put into rows. JSON could hide the key in escapes.
            if self._secrets:
                answer = json.loads(self._hide(json.dumps(answer, ensure_ascii=False)))
        except (ValueError, RecursionError):
            said = quote(self._hide(content.decode("utf-8", "replace")))
            raise EndpointFailure(f"{self.url} sent no JSON: {said}") from None
        return answer

    def _hide(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return text


_servers: weakref.WeakValueDictionary[Hashable, Server] = weakref.WeakValueDictionary()
_lock = threading.Lock()


def _times(number: int) -> str:
    return f" ({number} times)" if number > 1 else ""


def quote(value: object) -> str:
    """A piece of what a server sent, short enough for an error."""
    text = " ".join(str(value).split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"


def _ensure_address(url: str, section: str) -> None:
    try:
        parts = urlsplit(url)
        # An odd port raises. Python would leave out line feeds, and read another address.
        is_whole = parts.port != 0 and bool(parts.hostname) and url.isprintable()
        is_whole = is_whole and parts.scheme in ("http", "https") and " " not in url
        has_secrets = bool(parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        is_whole = has_secrets = False
    if not is_whole or has_secrets:
        shown = "it" if has_secrets else f"'{url}'"  # what may be a key is not quoted
        raise ConfigError(
            f"{section}: {shown} is no address of a server; expected one such as "
            "http://localhost:8000/v1, without name, password or query, because it is written "
            f"into run folders; a key belongs in an environment variable ({section}.key_env)"
        )
