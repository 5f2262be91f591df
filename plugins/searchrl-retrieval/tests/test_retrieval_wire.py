"""The wire of retrieval servers: two forms, what is refused, and the bugs of other servers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from searchrl_retrieval.http.wire import (
    Asked,
    BadRequest,
    Form,
    Limits,
    read_answer,
    read_request,
    write_answer,
    write_request,
)

from searchrl import RetrieverFailure
from searchrl.contracts import Passage

LIMITS = Limits(topk=3, max_k=10, queries=4, query_chars=20, passages=24)


def read(body: Any) -> Asked:
    return read_request(json.dumps(body).encode(), LIMITS)


def answer_of(form: Form, found: list[list[Passage]], **asked: Any) -> Any:
    queries = tuple("q" for _ in found)
    return json.loads(write_answer(Asked(queries, 3, form, **asked), found))


def stock_client_reads(items: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """As Search-R1's client takes passages apart (generation.py): title and text."""
    contents = [item["document"]["contents"] for item in items]
    return [(text.split("\n")[0], "\n".join(text.split("\n")[1:])) for text in contents]


def test_forms_are_told_apart_by_the_body() -> None:
    assert read({"queries": ["a", "b"], "topk": 2, "return_scores": True}) == Asked(
        ("a", "b"), 2, Form.SEARCH_R1, has_scores=True
    )
    assert read({"query": "a"}) == Asked(("a",), 3, Form.BROWSECOMP)
    assert read({"query": "a", "topk": 7}).k == 7
    assert read({"queries": ["a"], "eid": "x", "query": None}) == Asked(("a",), 3)


def test_topk_null_and_0_are_the_number_of_the_server() -> None:
    """So they are for the stock server, which asks `if not request.topk`."""
    bodies: list[dict[str, Any]] = [{}, {"topk": None}, {"topk": 0}]
    for body in bodies:
        assert read({"queries": ["a"]} | body) == Asked(("a",), 3)
        assert read({"query": "a"} | body).k == 3


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("{", 400, "no JSON"),
        ("", 400, "no JSON"),
        ("[" * 50_000, 400, "no JSON"),
        ('{"queries": ["\\ud800"]}', 400, "no JSON"),
        (b"\xff\xfe", 400, "no JSON"),
        ("[]", 422, "expected|object"),
        ("3", 422, "object"),
        ("{}", 422, "one of 'queries' and 'query'"),
        ('{"queries": ["a"], "query": "a"}', 422, "one of 'queries' and 'query'"),
        ('{"queries": "a"}', 422, "'queries'"),
        ('{"queries": [["a"]]}', 422, r"'queries.0'"),
        ('{"queries": [3]}', 422, r"'queries.0'.*got 3"),
        ('{"query": 3}', 422, "'query'"),
        ('{"queries": ["a"], "topk": -1}', 422, "topk must be from 1 to 10, got -1"),
        ('{"queries": ["a"], "topk": 11}', 422, "from 1 to 10"),
        ('{"queries": ["a"], "topk": 2.5}', 422, "'topk'"),
        ('{"queries": ["a"], "topk": 1e999}', 422, "'topk'"),
        (f'{{"queries": ["a"], "topk": {"9" * 5000}}}', 400, "out of range"),
        ('{"queries": ["a", "a", "a", "a", "a"]}', 413, "5 queries in one body; at most 4"),
        (f'{{"query": "{"x" * 21}"}}', 413, "21 characters; at most 20"),
        ('{"queries": ["a", "a", "a"], "topk": 9}', 413, "27 passages; at most 24"),
    ],
)
def test_what_is_no_request_is_refused(body: str | bytes, status: int, said: str) -> None:
    raw = body.encode() if isinstance(body, str) else body
    with pytest.raises(BadRequest, match=said) as error:
        read_request(raw, LIMITS)
    assert error.value.status == status and len(str(error.value)) < 300


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
near_requests = st.fixed_dictionaries(
    {},
    optional={
        "queries": json_values | st.lists(st.text()),
        "query": json_values,
        "topk": json_values,
        "return_scores": json_values,
    },
)


@given(st.binary() | (json_values | near_requests).map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_request_or_refused(raw: bytes) -> None:
    try:
        asked = read_request(raw, LIMITS)
    except BadRequest as refused:
        assert 400 <= refused.status < 500
    else:
        assert len(asked.queries) <= 4 and 1 <= asked.k <= 10


passages = st.builds(
    Passage,
    id=st.text(min_size=1).map(lambda text: f"i{text.strip()}"),
    text=st.text().map(lambda text: f"t{text.strip()}"),
    title=st.text().map(lambda text: " ".join(text.split())),
    score=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@given(st.lists(st.lists(passages, max_size=3, unique_by=lambda one: one.id), max_size=3))
def test_what_the_server_writes_the_client_reads(found: list[list[Passage]]) -> None:
    wired = answer_of(Form.SEARCH_R1, found, has_scores=True)
    assert read_answer(Form.SEARCH_R1, wired, len(found), 3) == found
    for one in found:
        wired = answer_of(Form.BROWSECOMP, [one])
        (read_back,) = read_answer(Form.BROWSECOMP, wired, 1, 3)
        assert read_back == [replace(passage, score=0.0) for passage in one]


def test_return_scores_false_gives_documents_and_no_mixture() -> None:
    """The stock server unpacks one value as two then: with two queries, the second is lost."""
    found = [[Passage("a", "x", "T", 2.0)], [Passage("b", "y", "T", 1.0)]]
    assert answer_of(Form.SEARCH_R1, found) == {
        "result": [[{"id": "a", "contents": '"T"\nx'}], [{"id": "b", "contents": '"T"\ny'}]]
    }


def test_a_client_always_asks_for_scores() -> None:
    """Against servers with that bug."""
    body = write_request(Form.SEARCH_R1, ["a", "b"], 2)
    assert body == {"queries": ["a", "b"], "topk": 2, "return_scores": True}
    assert write_request(Form.BROWSECOMP, ["a"], 2) == {"query": "a"}


def test_no_queries_are_an_empty_result() -> None:
    assert read({"queries": []}).queries == ()
    assert answer_of(Form.SEARCH_R1, []) == {"result": []}


def test_the_first_line_of_a_text_is_not_taken_for_its_title() -> None:
    found = [Passage("a", "one\ntwo"), Passage("b", "three", 'A "b"\nc'), Passage("c", "", "T")]
    wired = answer_of(Form.SEARCH_R1, [found], has_scores=True)["result"][0]
    assert stock_client_reads(wired) == [('""', "one\ntwo"), ('"A "b" c"', "three"), ('"T"', "")]


def test_the_last_document_that_an_index_repeats_is_found_once() -> None:
    """FAISS fills up with -1 where it has fewer than k texts, and `corpus[-1]` is the last one."""
    one, last = ({"document": {"id": i, "contents": f'"T"\n{i}'}, "score": 1.0} for i in "ab")
    (found,) = read_answer(Form.SEARCH_R1, {"result": [[one, last, last, last]]}, 1, 4)
    assert [passage.id for passage in found] == ["a", "b"]


def test_a_score_that_is_no_number_is_no_bad_json() -> None:
    text = write_answer(Asked(("q",), 1, has_scores=True), [[Passage("a", "x", score=math.nan)]])
    assert json.loads(text)["result"][0][0]["score"] is None and b"NaN" not in text


def test_half_of_a_pair_in_a_text_can_be_sent() -> None:
    assert b"\\ud800" in write_answer(Asked(("q",), 1), [[Passage("a", "x\ud800")]])


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
    ((found,),) = read_answer(Form.SEARCH_R1, {"result": [[item]]}, 1, 3)
    assert (found.text, found.title, found.score) == (
        read_back.text, read_back.title, read_back.score,
    )  # fmt: skip
    assert found.id == (read_back.id or found.id) and found.id


def test_equal_documents_without_ids_are_one_passage() -> None:
    items = [{"contents": "x"}, {"contents": "x"}, {"contents": "y"}]
    (found,) = read_answer(Form.SEARCH_R1, {"result": [items]}, 1, 9)
    assert [passage.text for passage in found] == ["x", "y"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([], "sent no"),
        ({}, "sent no"),
        ({"result": None}, "sent no"),
        ({"result": {"0": []}}, "sent no"),
        ({"result": ["x"]}, "sent no"),
        ({"detail": "busy"}, "busy"),
        ({"result": []}, "0 results for 1 queries"),
        ({"result": [[], []]}, "2 results for 1 queries"),
        ({"result": [["text"]]}, "no document"),
        ({"result": [[{"document": None}]]}, "no document"),
        ({"result": [[{"document": {"id": "a"}}]]}, "no passage"),
        ({"result": [[{"document": {"id": "a", "contents": ""}}]]}, "no passage"),
        ({"result": [[{"document": {"id": ["a"], "contents": "x"}}]]}, "no passage"),
        ({"result": [[{"document": {"id": "a", "contents": "x"}, "score": "2"}]]}, "no score"),
        ({"result": [[{"document": {"id": "a", "contents": "x"}, "score": math.nan}]]}, "no score"),
    ],
)
def test_an_answer_of_another_shape_is_a_failure_and_no_empty_result(
    answer: Any, said: str
) -> None:
    with pytest.raises(RetrieverFailure, match=said) as error:
        read_answer(Form.SEARCH_R1, answer, 1, 3)
    assert len(str(error.value)) < 500


def test_results_of_another_number_than_the_queries_are_a_failure() -> None:
    """Else query 2 is told what query 1 found."""
    with pytest.raises(RetrieverFailure, match="1 results for 2 queries"):
        read_answer(Form.SEARCH_R1, {"result": [[]]}, 2, 3)
