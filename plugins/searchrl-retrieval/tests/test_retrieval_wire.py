"""The wire of retrieval servers: what is refused, and the bugs of other servers."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searchrl_retrieval.http.wire import (
    Asked,
    BadRequest,
    Limits,
    ensure_within,
    read_answer,
    read_request,
    write_answer,
    write_request,
)

from searchrl import RetrieverFailure
from searchrl.contracts import Passage

LIMITS = Limits(topk=3, max_k=10, queries=4, query_chars=20, passages=24)


def read(raw: bytes) -> Asked:
    asked = read_request(raw, LIMITS)
    ensure_within(asked, LIMITS)
    return asked


def answer_of(found: list[list[Passage]], **asked: Any) -> Any:
    return json.loads(write_answer(Asked(("q",) * len(found), 3, **asked), found))


def test_a_body_is_read() -> None:
    body = b'{"queries": ["a", "b"], "topk": 2, "return_scores": true, "eid": "x"}'
    assert read(body) == Asked(("a", "b"), 2, has_scores=True)
    # For the stock server, too, null and 0 are its own number: `if not request.topk`.
    for more in (b"", b', "topk": null', b', "topk": 0'):
        assert read(b'{"queries": ["a"]' + more + b"}") == Asked(("a",), 3)
    assert read(b'{"queries": []}').queries == ()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("{", 400, "no JSON"),
        ("", 400, "no JSON"),
        ("[" * 50_000, 400, "no JSON"),
        ('{"queries": ["\\ud800"]}', 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        ("[]", 422, "queries"),
        ("{}", 422, "'queries'"),
        ('{"query": "a"}', 422, "'queries'"),
        ('{"queries": "a"}', 422, "'queries'"),
        ('{"queries": [3]}', 422, r"'queries.0'.*got 3"),
        ('{"queries": ["a"], "topk": -1}', 422, "topk must be from 1 to 10, got -1"),
        ('{"queries": ["a"], "topk": 11}', 422, "from 1 to 10"),
        ('{"queries": ["a"], "topk": 2.5}', 422, "'topk'"),
        ('{"queries": ["a", "a", "a", "a", "a"]}', 413, "5 queries; at most 4"),
        (f'{{"queries": ["{"x" * 21}"]}}', 413, "21 characters in a query; at most 20"),
        ('{"queries": ["a", "a", "a"], "topk": 9}', 413, "27 passages .*; at most 24"),
    ],
)
def test_what_is_no_request_is_refused(body: str | bytes, status: int, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as error:
        read(body.encode() if isinstance(body, str) else body)
    assert error.value.status == status and len(str(error.value)) < 300


passages = st.builds(
    Passage,
    id=st.text(min_size=1).map(lambda text: f"i{text.strip()}"),
    text=st.text().map(lambda text: f"t{text.strip()}"),
    title=st.text().map(lambda text: " ".join(text.split())),
    score=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@given(st.lists(st.lists(passages, max_size=3, unique_by=lambda one: one.id), max_size=3))
def test_what_the_server_writes_the_client_reads(found: list[list[Passage]]) -> None:
    assert read_answer(answer_of(found, has_scores=True), len(found), 3) == found


def test_return_scores_false_gives_documents_whose_title_is_the_first_line() -> None:
    """The stock server unpacks one value as two then; so clients always ask for scores. Those of
    Search-R1 (generation.py) take contents apart at the line feed.
    """
    found = [
        [Passage("a", "one\ntwo")],
        [Passage("b", "x", 'A "b"\nc', 2.0), Passage("c", "", "T")],
    ]
    b, c = {"id": "b", "contents": '"A "b" c"\nx'}, {"id": "c", "contents": '"T"\n'}
    assert answer_of(found) == {"result": [[{"id": "a", "contents": '""\none\ntwo'}], [b, c]]}
    assert write_request(["a"], 2) == {"queries": ["a"], "topk": 2, "return_scores": True}


def test_the_last_document_that_an_index_repeats_is_found_once_and_no_more_than_k_are() -> None:
    """FAISS fills up with -1 where it has fewer than k texts, and `corpus[-1]` is the last one."""
    one, last = ({"document": {"id": i, "contents": f'"T"\n{i}'}, "score": 1.0} for i in "ab")
    (found,), (first,) = (read_answer({"result": [[one, last, last]]}, 1, k) for k in (3, 1))
    assert ([passage.id for passage in found], [first[0].id]) == (["a", "b"], ["a"])
    assert len(first) == 1


def test_scores_and_texts_that_json_or_utf_8_cannot_hold_are_written() -> None:
    found = [Passage("a", "x\ud800", score=math.nan)]
    text = write_answer(Asked(("q",), 1, has_scores=True), [found])
    assert json.loads(text)["result"][0][0]["score"] is None and b"NaN" not in text
    assert b"\\ud800" in text


@pytest.mark.parametrize(
    ("item", "read_back"),
    [
        ({"document": {"id": "a", "contents": '"T"\nx'}, "score": 2}, Passage("a", "x", "T", 2.0)),
        ({"id": 7, "contents": '"T"\nx'}, Passage("7", "x", "T")),
        ({"document": {"id": "a", "title": "T", "text": "x", "contents": "T\nx"}, "score": None},
         Passage("a", "x", "T")),
        ({"document": {"title": "T", "text": "x"}, "docid": "d"}, Passage("d", "x", "T")),
        ({"document": {"contents": "no title"}}, Passage("", "no title")),
    ],
)  # fmt: skip
def test_documents_as_servers_write_them(item: Any, read_back: Passage) -> None:
    ((found,),) = read_answer({"result": [[item, item]]}, 1, 3)
    assert (found.text, found.title, found.score) == (
        read_back.text, read_back.title, read_back.score,
    )  # fmt: skip
    assert found.id == (read_back.id or found.id) and found.id


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "sent no"),
        ({"result": None}, "sent no"),
        ({"result": ["x"]}, "sent no"),
        ({"detail": "busy"}, "busy"),
        ({"result": []}, "0 results for 1 queries"),
        ({"result": [[], []]}, "2 results for 1 queries"),
        ({"result": [["text"]]}, "no document"),
        ({"result": [[{"document": None}]]}, "no document"),
        ({"result": [[{"document": {"id": "a", "contents": ""}}]]}, "no passage"),
        ({"result": [[{"document": {"id": ["a"], "contents": "x"}}]]}, "no passage"),
        ({"result": [[{"document": {"id": "a", "contents": "x"}, "score": "2"}]]}, "no score"),
        ({"result": [[{"document": {"id": "a", "contents": "x"}, "score": math.nan}]]}, "no score"),
        ({"result": [[{"document": {"id": "a", "contents": "x"}, "score": math.inf}]]}, "no score"),
    ],
)
def test_an_answer_of_another_shape_is_a_failure_and_no_empty_result(
    answer: Any, said: str
) -> None:
    with pytest.raises(RetrieverFailure, match=said) as error:
        read_answer(answer, 1, 3)
    assert len(str(error.value)) < 500
