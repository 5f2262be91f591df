"""The retriever `http` against servers on this machine: order, batches, failures, keys, https."""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from retrieval_servers import Asked, Odd, documents, odd_server
from searchrl_retrieval.http.client import HttpRetriever

from searchrl.contracts import StoredRetriever
from searchrl.errors import ConfigError, RetrieverFailure

KEY = "sk-secret-0123"


def answer(body: Any) -> Odd:
    """As a stock server does."""
    if "query" in body:
        (items,) = documents(body["query"], k=3)
        bare = [{"document": {"title": "T", "text": i["document"]["id"]}, "docid": n}
                for n, i in enumerate(items)]  # fmt: skip
        return Odd(body={"result": bare})
    return Odd(body={"result": documents(*body["queries"], k=body["topk"])})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)


def ids(retriever: HttpRetriever, queries: list[str], k: int = 1) -> list[list[str]]:
    return [[passage.id for passage in found] for found in retriever.search(queries, k)]


def failure_of(odd: Odd, **settings: Any) -> tuple[str, list[Asked]]:
    """What is said of a server that always answers so, and what it was asked."""
    with odd_server(lambda body: odd) as (url, asked):
        retriever = HttpRetriever((), url=url, **settings)
        with pytest.raises(RetrieverFailure) as error:
            retriever.search(["q"], 1)
    return str(error.value), asked


def test_queries_are_split_and_their_order_is_kept() -> None:
    queries = [f"q{i}" for i in range(11)]
    with odd_server(answer) as (url, asked):
        found = ids(HttpRetriever((), url=url, batch_size=4), queries, 2)
    assert found == [[f"{query}/0", f"{query}/1"] for query in queries]
    assert [one.body["queries"] for one in asked] == [queries[:4], queries[4:8], queries[8:]]
    assert all(one.body["return_scores"] and one.body["topk"] == 2 for one in asked)


def test_a_server_that_takes_fewer_queries_gets_fewer() -> None:
    def small(body: Any) -> Odd:
        return answer(body) if len(body["queries"]) <= 3 else Odd(413, {"detail": "too many"})

    queries = [f"q{i}" for i in range(20)]
    with odd_server(small) as (url, asked):
        retriever = HttpRetriever((), url=url, batch_size=16)
        assert ids(retriever, queries) == [[f"{query}/0"] for query in queries]
        num_asked = len(asked)
        assert ids(retriever, queries[:4]) == [[f"{query}/0"] for query in queries[:4]]
        assert len(asked) == num_asked + 2, "it has learnt how many"
    full = Odd(413, {"detail": "too long"})
    assert "answered 413" in failure_of(full)[0]


def test_nothing_is_sent_for_nothing() -> None:
    with odd_server(answer) as (url, asked):
        retriever = HttpRetriever((), url=url)
        assert retriever.search([], 3) == []
        assert retriever.search(["q"], 0) == [[]] and retriever.search([" ", ""], 3) == [[], []]
        assert asked == []
        assert ids(retriever, ["", "a", " ", "b"]) == [[], ["a/0"], [], ["b/0"]]
    assert [one.body["queries"] for one in asked] == [["a", "b"]]


def test_any_text_of_a_model_is_a_query() -> None:
    with odd_server(answer) as (url, asked):
        retriever = HttpRetriever((), url=url, max_query_chars=10)
        retriever.search(["x" * 1000, "half \ud800 pair", "\x00", "学位"], 1)
    assert asked[0].body["queries"] == ["x" * 10, "half ? pai", "\x00", "学位"]


def test_servers_of_browsecomp_plus_get_one_query_at_a_time() -> None:
    with odd_server(answer) as (url, asked):
        retriever = HttpRetriever((), url=url, form="browsecomp-plus")
        assert ids(retriever, ["a", "b"], 2) == [["0", "1"], ["0", "1"]]
    assert [one.body for one in asked] == [{"query": "a"}, {"query": "b"}]


def test_a_busy_server_is_asked_again() -> None:
    faults = [Odd(503), Odd(500, {}), Odd(429, headers={"Retry-After": "0.01"})]

    def busy(body: Any) -> Odd:
        return faults.pop(0) if faults else answer(body)

    with odd_server(busy) as (url, asked):
        assert ids(HttpRetriever((), url=url, max_retries=3), ["a"]) == [["a/0"]]
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("odd", "said", "num_asked"),
    [
        (Odd(500, {"detail": "the index is gone"}), r"the index is gone.*\(3 times\)", 3),
        (Odd(404), "answered 404.*look at the address", 1),
        (Odd(422, {"detail": "topk"}), "answered 422.*topk", 1),
        (Odd(302, headers={"Location": "http://evil.example"}), "answered 302", 1),
        (Odd(200, b"<html>"), "sent no JSON: <html>", 1),
        (Odd(200, b"[" * 50_000), "sent no JSON", 1),
        (Odd(200, {"result": []}), "0 results for 1 queries", 1),
        (Odd(200, {"result": None}), "sent no", 1),
        (Odd(200, {"detail": "x" * 100_000}), "sent no", 1),
    ],
)
def test_a_failure_is_a_failure_and_never_an_empty_result(
    odd: Odd, said: str, num_asked: int
) -> None:
    text, asked = failure_of(odd)
    assert re.search(said, text) and len(text) < 600
    assert len(asked) == num_asked


def test_a_server_that_is_down_or_silent_is_a_failure() -> None:
    with odd_server(answer) as (url, _):
        pass
    with pytest.raises(RetrieverFailure, match="cannot be reached"):
        HttpRetriever((), url=url).search(["q"], 1)
    with odd_server(lambda body: answer(body)._replace(delay_s=1.0)) as (url, _):
        retriever = HttpRetriever((), url=url, timeout_s=0.1, max_retries=0)
        with pytest.raises(RetrieverFailure, match=r"0\.1 s \(retriever\.timeout_s\)"):
            retriever.search(["q"], 1)


def test_a_server_that_failed_many_times_is_still_asked() -> None:
    """A client of endpoints gives up; a run outlives the restart of its retrieval server."""
    left = iter([Odd(503)] * 60)
    with odd_server(lambda body: next(left, None) or answer(body)) as (url, asked):
        retriever = HttpRetriever((), url=url, max_retries=0, concurrency=1)
        for _ in range(60):
            with pytest.raises(RetrieverFailure, match="answered 503"):
                retriever.search(["q"], 1)
        assert len(ids(retriever, ["q"])[0]) == 1
    assert len(asked) == 61


def test_the_key_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEARCH_KEY", f"{KEY}\n")
    with odd_server(answer) as (url, asked):
        HttpRetriever((), url=url, key_env="SEARCH_KEY").search(["q"], 1)
        HttpRetriever((), url=url).search(["q"], 1)
        monkeypatch.setenv("SEARCH_KEY", "Basic abc=")
        HttpRetriever((), url=url, key_env="SEARCH_KEY").search(["q"], 1)
    sent = [one.headers.get("authorization") for one in asked]
    assert sent == [f"Bearer {KEY}", None, "Basic abc="]
    monkeypatch.setenv("SEARCH_KEY", KEY)
    text, _ = failure_of(Odd(401, {"detail": f"wrong: {KEY}"}), key_env="SEARCH_KEY")
    assert re.search(r"wrong: \[key\].*retriever\.key_env", text) and KEY not in text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": f"http://h/retrieve?key={KEY}"}, r"is no address.*retriever\.key_env"),
        ({"url": "http://h/retrieve", "key_env": "NO_SUCH_KEY"}, "NO_SUCH_KEY.*is not set"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        HttpRetriever((), **settings)
    assert KEY not in str(error.value)


def test_threads_share_connections_and_no_more_calls_than_allowed_are_under_way() -> None:
    with odd_server(lambda body: answer(body)._replace(delay_s=0.01)) as (url, asked):
        retrievers = [HttpRetriever((), url=url, concurrency=3) for _ in range(2)]
        found: list[Any] = []

        def work(number: int) -> None:
            for i in range(10):
                found.append(
                    ids(retrievers[number % 2], [f"t{number}-{i}"]) == [[f"t{number}-{i}/0"]]
                )

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True] * 80
    assert len({one.connection for one in asked}) <= 3


def test_its_passages_are_elsewhere() -> None:
    retriever = HttpRetriever((), url="http://localhost:1/retrieve")
    assert isinstance(retriever, StoredRetriever) and retriever.stored(["a"]) is None


def make_certificate(folder: Path) -> Path:
    """A certificate for localhost that nobody signed, with its key, as one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_bytes = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "certificate.pem"
    path.write_bytes(made.public_bytes(pem) + key_bytes)
    return path


def test_https_with_a_certificate_that_is_trusted_and_with_one_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with odd_server(answer, context) as (url, _):
        with pytest.raises(RetrieverFailure, match="(?i)certificate"):
            HttpRetriever((), url=url, max_retries=0).search(["q"], 1)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert ids(HttpRetriever((), url=url), ["q"]) == [["q/0"]]
