"""Search-R1's form of a retrieval server on the wire: bodies of requests and of answers.

Owns the form (`queries`, `topk`, `return_scores`) and the check of everything that comes from the
other side. Sends and searches nothing. Source: Search-R1 (PeterGriffinJin/Search-R1,
retrieval_server.py).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from searchrl import RetrieverFailure, show_value
from searchrl.contracts import Passage, make_encodable
from searchrl.data import BadRow, parse_passage


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server, and the default number of passages (`topk`).

    `passages` (queries times k) bounds one answer; `max_k` allows `hybrid` lists of 100;
    `search_s` is how long a search may take.
    """

    topk: int = 3
    max_k: int = 300
    queries: int = 4096
    query_chars: int = 16_384
    passages: int = 20_000
    body_bytes: int = 16 << 20
    search_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its queries, how many passages each may find, and whether scores are wanted."""

    queries: tuple[str, ...]
    k: int
    has_scores: bool = False


class BadRequest(Exception):
    """A request that is not answered with passages; `status` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Body(BaseModel):
    """Unknown keys are let through, as the stock server does: clients send keys of their own."""

    queries: list[str]
    topk: int | None = None
    return_scores: bool = False


# The side of the server.


def read_request(raw: bytes, limits: Limits) -> Asked:
    """Parse the body of a request.

    Raises:
        BadRequest: if it is no JSON, or no request.
    """
    try:
        body = _Body.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise BadRequest(400, f"the body is no JSON: {first['msg']}") from error
        place = ".".join(map(str, first["loc"]))
        said = f"'{place}': {first['msg']}, got {show_value(first['input'])}"
        text = f'expected {{"queries": [text, …], "topk": number}}; {said}'
        raise BadRequest(422, text) from error
    # 0 is the number of the server, as for the stock one.
    return Asked(tuple(body.queries), body.topk or limits.topk, body.return_scores)


def ensure_within(asked: Asked, limits: Limits) -> None:
    """Raise `BadRequest` if a request asks for more than is given, or for nothing."""
    if not 1 <= asked.k <= limits.max_k:
        said = show_value(asked.k)
        raise BadRequest(422, f"topk must be from 1 to {limits.max_k}, got {said}")
    count, longest = len(asked.queries), max(map(len, asked.queries), default=0)
    for what, found, limit in (
        ("queries", count, limits.queries),
        ("characters in a query", longest, limits.query_chars),
        ("passages (queries times topk)", count * asked.k, limits.passages),
    ):
        if found > limit:
            raise BadRequest(413, f"{found:,} {what}; at most {limit:,}")


def write_answer(asked: Asked, found: Sequence[Sequence[Passage]]) -> bytes:
    """The body of an answer: `found` holds the passages of each query, in their order."""
    result = [[_item(passage, asked.has_scores) for passage in passages] for passages in found]
    # ASCII, because a text may hold what UTF-8 cannot (half of a pair).
    return json.dumps({"result": result}, allow_nan=False).encode("ascii")


def _item(passage: Passage, has_score: bool) -> dict[str, Any]:
    # Clients of Search-R1 take title and text apart at the first line feed.
    title = " ".join(passage.title.splitlines())
    document = {"id": passage.id, "contents": f'"{title}"\n{passage.text}'}
    if not has_score:
        return document
    score = float(passage.score)
    return {"document": document, "score": score if math.isfinite(score) else None}


# The side of the client.


def write_request(queries: Sequence[str], k: int) -> dict[str, Any]:
    """The body that asks for queries. Scores are always asked for: some servers fail without."""
    return {"queries": list(queries), "topk": k, "return_scores": True}


def read_answer(answer: Any, num_queries: int, k: int) -> list[list[Passage]]:
    """The passages in a decoded answer, for each query at most `k`, none twice.

    Raises:
        RetrieverFailure: if it is not of this form, or does not answer every query.
    """
    result = answer.get("result") if isinstance(answer, Mapping) else None
    if not isinstance(result, list) or any(not isinstance(items, list) for items in result):
        raise RetrieverFailure(f'the server sent no {{"result": […]}}: {show_value(answer)}')
    if len(result) != num_queries:
        raise RetrieverFailure(
            f"the server sent {len(result)} results for {num_queries} queries: {show_value(answer)}"
        )
    # Each once: of an index with fewer than k texts, some servers repeat the last one.
    found = [{one.id: one for one in reversed([*map(_read_passage, items)])} for items in result]
    return [[*reversed(passages.values())][:k] for passages in found]


def _read_passage(item: Any) -> Passage:
    """A passage: an item with `document`, or a bare document."""
    is_wrapped = isinstance(item, Mapping) and "document" in item
    document = item["document"] if is_wrapped else item
    if not isinstance(document, Mapping):
        raise RetrieverFailure(f"the server sent no document: {show_value(item)}")
    # JSON can say halves of pairs, which UTF-8 cannot hold.
    known = {
        key: make_encodable(value) if isinstance(value, str) else value
        for key, value in {"docid": item.get("docid"), **document}.items()
    }
    if known.get("id") is None and known.get("_id") is None:
        # Some corpora have no ids: equal texts are one passage.
        text = json.dumps(document, sort_keys=True, default=str)
        marked = hashlib.sha256(text.encode()).hexdigest()[:16]
        known["id"] = marked if known["docid"] is None else known["docid"]
    score = item.get("score") if is_wrapped else 0.0
    score = 0.0 if score is None else score
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise RetrieverFailure(f"the server sent no score: {show_value(item)}")
    try:
        passage = parse_passage(known)
        if not (passage.title or passage.text):
            raise BadRow("no title and no text")
    except BadRow as reason:
        raise RetrieverFailure(
            f"the server sent a document that is no passage ({reason}): {show_value(item)}"
        ) from reason
    return replace(passage, score=float(score))
