"""One HTTP call: JSON goes out, JSON or the reason why there is none comes back.

Owns the connections, the key with its one header, the limits on time and size, what an address may
be, and what is said of failures: nothing that leaves this module holds the key, neither a text nor
an answer. It repeats nothing, counts nothing, keeps nothing, and knows no model and no corpus.
Caller: `sending`.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from searchrl.endpoints.retries import BUSY, HOPELESS, read_retry_after
from searchrl.errors import ConfigError, EndpointFailure

if TYPE_CHECKING:
    import httpx2

_QUOTED = 300
"""Characters of an answer that are quoted in an error, at most."""
MAX_BYTES = 32 * 2**20
"""Bytes of an answer, at most: more than a batch of passages."""
_SECRET_CHARS = 12
"""Characters of a real key, at least: `EMPTY`, made up for a server of your own, is also a word."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server and how it is asked. `key` is never shown.

    `section` is where its settings stand, for messages: `endpoint`, `retriever`. `advice` is what
    to do about a status, for messages, too. `hopeless` are the statuses that every other request
    would get as well. `max_bytes` bounds an answer.
    """

    url: str
    section: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 120.0
    concurrency: int = 8
    advice: tuple[tuple[int, str], ...] = ((404, "look at the address"),)
    hopeless: frozenset[int] = HOPELESS
    max_bytes: int = MAX_BYTES


class Passing(Exception):
    """A call failed in a way that may pass; `asked_s` is how long the server asks to wait."""

    def __init__(self, text: str, asked_s: float | None = None) -> None:
        super().__init__(text)
        self.asked_s = asked_s


class Refused(EndpointFailure):
    """The server finds fault with the request; `status` is what it answered."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Hopeless(Refused):
    """A failure that every other call would meet as well."""


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


def ensure_address(url: str, what: str, example: str, section: str) -> None:
    """Raise `ConfigError` if `url` is no http address, or holds a name, password or query.

    `what` and `example` are for the message: `an endpoint`, and what an address looks like.
    """
    try:
        parts = urlsplit(url)
        is_wrong = parts.scheme not in ("http", "https") or not parts.hostname
        # Python would leave out line feeds, and read another address than the one that is shown.
        is_wrong = is_wrong or not url.isprintable() or " " in url
        has_secrets = bool(parts.username or parts.password or parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        is_wrong, has_secrets = True, False
    if has_secrets:  # it may be a key: not quoted
        raise ConfigError(
            f"the address of {what} holds no name, password, query or fragment, because it is "
            "written into run folders; a key belongs in an environment variable "
            f"({section}.key_env)"
        )
    if is_wrong:
        raise ConfigError(f"'{url}' is no address of {what}; expected one such as {example}")


def authorization(key: str) -> str:
    """The header for a key: `Bearer KEY`; of two words, such as `Basic abc=`, they themselves."""
    return key if " " in key else f"Bearer {key}"


class Transport:
    """Sends bodies to one server; safe to use from several threads, which share its connections."""

    def __init__(self, target: Target) -> None:
        import httpx2

        self.target = target
        headers = {"Authorization": authorization(target.key)} if target.key else {}
        # The caller says how many calls there are at once. Redirects are not followed: they would
        # carry the key elsewhere.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=target.concurrency)
        self._http = httpx2.Client(timeout=target.timeout_s, headers=headers, limits=limits)

    def post(self, body: Any) -> Any:
        """Send a body once; the decoded answer.

        Raises:
            Passing: if the same call may succeed later.
            Hopeless: if no call can succeed.
            EndpointFailure: if this one cannot.
        """
        import httpx2

        url = self.target.url
        deadline = time.monotonic() + self.target.timeout_s
        try:
            with self._http.stream("POST", url, json=body) as answer:
                content = self._read(answer, deadline)
        except httpx2.TimeoutException as error:
            raise self._late() from error
        except httpx2.HTTPError as error:
            raise Passing(f"{url} cannot be reached: {self.clean(str(error))}") from error
        if answer.status_code != 200:
            raise self._refused(answer, content.decode("utf-8", "replace"))
        try:
            return self._without_key(json.loads(content))
        except (ValueError, RecursionError) as error:
            said = self.clean(content.decode("utf-8", "replace"))
            raise EndpointFailure(f"{url} sent no JSON: {said}") from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _read(self, answer: httpx2.Response, deadline: float) -> bytes:
        """All of an answer. The limit of the library is one of silence, ours is one of the call."""
        content = bytearray()
        for piece in answer.iter_bytes():
            content += piece
            if len(content) > self.target.max_bytes:
                raise EndpointFailure(
                    f"{self.target.url} sent more than {self.target.max_bytes:,} bytes, which is "
                    "no answer"
                )
            if time.monotonic() > deadline:
                raise self._late()
        return bytes(content)

    def _late(self) -> Passing:
        limit = f"{self.target.timeout_s:g} s ({self.target.section}.timeout_s)"
        return Passing(f"{self.target.url} did not answer within {limit}")

    def _refused(self, answer: httpx2.Response, content: str) -> Exception:
        """What a status other than 200 means."""
        status, section = answer.status_code, self.target.section
        said = self.clean(content)
        text = f"{self.target.url} answered {status}" + (f": {said}" if said else "")
        if status in BUSY:
            return Passing(text, read_retry_after(answer.headers))
        if 300 <= status < 400:
            text += "; it sends us elsewhere, and no key is carried there: name the new address"
        elif advice := dict(self.target.advice).get(status):
            text += f"; {advice}"
        elif status in (401, 403):
            text += f"; the key is read from the environment variable that {section}.key_env names"
        return Hopeless(text, status) if status in self.target.hopeless else Refused(text, status)

    def clean(self, text: str) -> str:
        """What a server or a library said, short and without the key."""
        for secret in self._secrets():
            text = text.replace(secret, "[key]")
        return quote(text)

    def _without_key(self, answer: Any) -> Any:
        """A decoded answer without the key: it is kept, shown and put into rows.

        Not in the bytes, where escapes of JSON would hide it.
        """
        secrets = [secret for secret in self._secrets() if len(secret) >= _SECRET_CHARS]
        if not secrets:
            return answer
        said = cleaned = json.dumps(answer)
        for secret in secrets:
            cleaned = cleaned.replace(json.dumps(secret)[1:-1], "[key]")
        return answer if cleaned == said else json.loads(cleaned)

    def _secrets(self) -> Iterable[str]:
        """The key; of a header of two words, `Basic abc=`, the second one is as secret."""
        key = self.target.key or ""
        return filter(None, dict.fromkeys((key, key.rpartition(" ")[2])))


def quote(value: object) -> str:
    """A piece of what a server sent, short enough for an error."""
    text = " ".join(str(value).split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} …"
