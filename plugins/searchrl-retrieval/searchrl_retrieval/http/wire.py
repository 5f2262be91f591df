"""The two forms of a retrieval server on the wire: bodies of requests and of answers.

Owns the Search-R1 form (`queries`, `topk`, `return_scores`), the look-alike of BrowseComp-Plus
(`query`), how they are told apart, and the check of everything that comes from the other side.
Sends and searches nothing. Sources: Search-R1 (PeterGriffinJin/Search-R1, retrieval_server.py) and
BrowseComp-Plus (texttron/BrowseComp-Plus, search_r1_server.py).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from searchrl import RetrieverFailure, show_value
from searchrl.contracts import Passage, make_encodable
from searchrl.data import BadRow, parse_passage


class Form(StrEnum):
    """How a server is asked."""

    SEARCH_R1 = "search-r1"
    """Many queries in one body, and how many passages are wanted."""
    BROWSECOMP = "browsecomp-plus"
    """One query in a body; the server decides how many passages come."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes, and how many passages it gives if nothing is said.

    `passages` (queries times k) and `answer_bytes` bound one answer, `pending_bytes` the bodies of
    all requests that are under way. `body_s` and `search_s` are how long a body and a search take.
    """

    topk: int = 3
    max_k: int = 100
    queries: int = 4096
    query_chars: int = 16_384
    passages: int = 20_000
    answer_bytes: int = 32 << 20
    body_bytes: int = 16 << 20
    pending_bytes: int = 256 << 20
    body_s: float = 30.0
    search_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its queries, how many passages each may find, and how the answer is written."""

    queries: tuple[str, ...]
    k: int
    form: Form = Form.SEARCH_R1
    has_scores: bool = False


class BadRequest(Exception):
    """A request that is not searched for; `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Body(BaseModel):
    """Unknown keys are let through, as the stock server does: clients send keys of their own."""

    model_config = ConfigDict(extra="ignore")

    queries: list[str] | None = None
    query: str | None = None
    topk: int | None = None
    return_scores: bool = False


# The side of the server.


def read_request(raw: bytes, limits: Limits) -> Asked:
    """What a body asks for.

    Raises:
        BadRequest: if it is no JSON, no request, or beyond a limit.
    """
    try:
        body = _Body.model_validate_json(raw)
    except ValidationError as error:
        raise _explain(error) from error
    if (body.queries is None) == (body.query is None):
        text = 'expected {"queries": [text, …], "topk": number} or {"query": text}'
        raise BadRequest(422, f"{text}, with one of 'queries' and 'query'")
    k = body.topk or limits.topk  # 0 as well: so does the stock server
    if body.query is not None:
        asked = Asked((body.query,), k, Form.BROWSECOMP)
    else:
        asked = Asked(tuple(body.queries or ()), k, has_scores=body.return_scores)
    ensure_within(asked, limits)
    return asked


def ensure_within(asked: Asked, limits: Limits) -> None:
    """Raise `BadRequest` if a request asks for more than is given, or for nothing."""
    if not 1 <= asked.k <= limits.max_k:
        said = show_value(asked.k)
        raise BadRequest(422, f"topk must be from 1 to {limits.max_k}, got {said}")
    count, longest = len(asked.queries), max(map(len, asked.queries), default=0)
    if count > limits.queries:
        raise BadRequest(413, f"{count:,} queries in one body; at most {limits.queries:,}")
    if longest > limits.query_chars:
        text = f"a query of {longest:,} characters; at most {limits.query_chars:,}"
        raise BadRequest(413, text)
    if count * asked.k > limits.passages:
        text = f"{count:,} queries with topk {asked.k} are {count * asked.k:,} passages"
        raise BadRequest(413, f"{text}; at most {limits.passages:,} in one answer")


def _explain(error: ValidationError) -> BadRequest:
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return BadRequest(400, f"the body is no JSON: {first['msg']}")
    place = ".".join(map(str, first["loc"]))
    said = f"'{place}': {first['msg']}" if place else first["msg"]
    return BadRequest(422, f"{said}, got {show_value(first['input'])}")


def write_answer(
    asked: Asked, found: Sequence[Sequence[Passage]], limits: Limits | None = None
) -> bytes:
    """The body of an answer: `found` holds the passages of each query, in their order.

    Raises:
        BadRequest: if it is larger than the limit.
    """
    limit = (limits or Limits()).answer_bytes
    if sum(len(passage.text) for passages in found for passage in passages) > limit:
        raise _too_much(limit)
    result: list[Any]
    if asked.form is Form.BROWSECOMP:
        result = [
            {"document": {"title": passage.title, "text": passage.text}, "docid": passage.id}
            for passages in found
            for passage in passages
        ]
    else:
        result = [[_item(passage, asked.has_scores) for passage in passages] for passages in found]
    # ASCII, because a text may hold what UTF-8 cannot (half of a pair).
    answer = json.dumps({"result": result}, allow_nan=False).encode("ascii")
    if len(answer) > limit:
        raise _too_much(limit)
    return answer


def _too_much(limit: int) -> BadRequest:
    return BadRequest(413, f"the answer would be larger than {limit:,} bytes; ask for less at once")


def _item(passage: Passage, has_score: bool) -> dict[str, Any]:
    document = {"id": passage.id, "contents": write_contents(passage)}
    return {"document": document, "score": _number(passage.score)} if has_score else document


def write_contents(passage: Passage) -> str:
    """Title and text as clients of Search-R1 take them apart: at the first line feed."""
    title = " ".join(passage.title.splitlines())
    return f'"{title}"\n{passage.text}'


def _number(score: float) -> float | None:
    """A score as JSON has it; None for what is no finite number."""
    return float(score) if math.isfinite(score) else None


# The side of the client.


def write_request(form: Form, queries: Sequence[str], k: int) -> dict[str, Any]:
    """The body that asks for queries; of `BROWSECOMP` for the only one.

    Scores are always asked for: servers exist that fail without.
    """
    if form is Form.BROWSECOMP:
        (query,) = queries
        return {"query": query}
    return {"queries": list(queries), "topk": k, "return_scores": True}


def read_answer(form: Form, answer: Any, num_queries: int, k: int) -> list[list[Passage]]:
    """The passages in a decoded answer, for each query at most `k`, none twice.

    Raises:
        RetrieverFailure: if it is not what the form says, or does not answer every query.
    """
    result = answer.get("result") if isinstance(answer, Mapping) else None
    if form is Form.BROWSECOMP and isinstance(result, list):
        result = [result]
    if not isinstance(result, list) or any(not isinstance(items, list) for items in result):
        raise RetrieverFailure(f'the server sent no {{"result": […]}}: {show_value(answer)}')
    if len(result) != num_queries:
        raise RetrieverFailure(
            f"the server sent {len(result)} results for {num_queries} queries: {show_value(answer)}"
        )
    return [list(_read_passages(items))[:k] for items in result]


def _read_passages(items: Sequence[Any]) -> Iterator[Passage]:
    """Each passage once: of an index with fewer than k texts, some servers repeat the last one."""
    seen: set[str] = set()
    for item in items:
        passage = _read_passage(item)
        if passage.id not in seen:
            seen.add(passage.id)
            yield passage


def _read_passage(item: Any) -> Passage:
    """A passage: an item with `document`, or a bare document."""
    is_wrapped = isinstance(item, Mapping) and "document" in item
    document = item["document"] if is_wrapped else item
    if not isinstance(document, Mapping):
        raise RetrieverFailure(f"the server sent no document: {show_value(item)}")
    known = {key: _encodable(value) for key, value in document.items()}
    for holder in (item, document):
        if known.get("id") is None and known.get("_id") is None:
            known["id"] = _encodable(holder.get("docid"))
    if known["id" if known.get("_id") is None else "_id"] is None:
        # Some corpora have no ids: equal texts are one passage.
        text = json.dumps(document, sort_keys=True, default=str)
        known["id"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        passage = parse_passage(known)
        if not (passage.title or passage.text):
            raise BadRow("no title and no text")
    except BadRow as reason:
        raise RetrieverFailure(
            f"the server sent a document that is no passage ({reason}): {show_value(item)}"
        ) from reason
    return replace(passage, score=_read_score(item.get("score") if is_wrapped else None, item))


def _encodable(value: Any) -> Any:
    """A text without halves of pairs, which JSON can say and UTF-8 cannot; anything else as is."""
    return make_encodable(value) if isinstance(value, str) else value


def _read_score(score: Any, item: Any) -> float:
    """The score of an item; 0 for one without."""
    if score is None:
        return 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise RetrieverFailure(f"the server sent no score: {show_value(item)}")
    return float(score)
