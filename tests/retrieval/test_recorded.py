"""`recorded`: asked once, kept with what was asked, replayed without anybody, and counted."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from searchrl.contracts import Passage, StoredRetriever
from searchrl.contracts.retrieving import NamedFactory, RankingRetriever
from searchrl.errors import BudgetSpent, ConfigError, EndpointFailure, RetrieverFailure
from searchrl.retrieval.recorded import RecordedRetriever, begin_counting, count_searches

QUERIES = ["skarn", "orm", "skarn"]


class Live:
    """Finds something else each time it is asked; `asked` are the queries."""

    def __init__(self, passages: Sequence[Passage] = (), delay_s: float = 0.0) -> None:
        self.asked: list[str] = []
        self.delay_s = delay_s

    def __call__(self, passages: Sequence[Passage]) -> Live:
        return self

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        time.sleep(self.delay_s)
        self.asked += queries
        return [[Passage(f"{q}{len(self.asked)}", "half \ud800 pair", q, 1)] for q in queries]

    def ranks(self, queries: Sequence[str], ids: Sequence[str]) -> list[dict[str, int | None]]:
        return [dict.fromkeys(ids, len(self.asked)) for _ in queries]


@pytest.fixture
def file(tmp_path: Path) -> str:
    begin_counting()
    return str(tmp_path / "found.sqlite")


def make(live: Live, file: str, *passages: Passage, of: Any = (), **more: Any) -> Any:
    inner = NamedFactory(live, "live", dict(of), is_concurrent=True)
    return RecordedRetriever(passages, inner=inner, file=file, **more)


def test_what_was_found_once_is_never_asked_again_also_by_another_process(file: str) -> None:
    live = Live()
    found = make(live, file).search(QUERIES, 3)
    assert live.asked == ["skarn", "orm"] and found[0] == found[2] != found[1]
    begin_counting()  # as another process, with a connection of its own
    assert make(live, file, of={"timeout_s": 3}).search(QUERIES, 3) == found
    assert count_searches({}) == {file: {"calls": 0, "saved": 2, "missed": 0, "cost": 0.0}}
    # Another k, another setting and another corpus are other questions.
    make(live, file).search(["orm"], 4)
    make(live, file, of={"category": "news"}).search(["orm"], 3)
    make(live, file, Passage("a", "text")).search(["orm"], 3)
    assert live.asked[2:] == ["orm"] * 3


def test_the_file_says_engine_settings_and_date(file: str) -> None:
    make(Live(), file, of={"category": "news"}).search(["orm"], 3)
    with sqlite3.connect(file) as database:
        ((text,),) = database.execute("SELECT reply FROM replies")
    row = json.loads(text)
    asked = {"engine": "live", "settings": {"category": "news"}, "corpus": None}
    assert row["asked"] == asked | {"query": "orm", "k": 3} and row["date"][:2] == "20"
    (found,) = row["found"]
    assert found["id"] == "orm1" and found["text"] == "half \ud800 pair" and found["score"] == 1


def test_the_answer_that_another_process_kept_meanwhile_holds(file: str) -> None:
    other = make(Live(), file)
    begin_counting()  # as another process

    class Late(Live):
        def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            other.search(queries, k)
            self.asked.append("an earlier one")
            return super().search(queries, k)

    ((found,),) = make(Late(), file).search(["orm"], 1)
    assert found.id == "orm1"


def test_threads_that_ask_the_same_ask_once(file: str) -> None:
    live = Live(delay_s=0.05)
    pairs = [QUERIES, QUERIES[::-1]] * 4
    threads = [threading.Thread(target=make(live, file).search, args=(p, 1)) for p in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(live.asked) == ["orm", "skarn"]


def test_replay_asks_nobody_and_a_miss_names_query_and_file(file: str) -> None:
    with pytest.raises(ConfigError, match=r"found.sqlite' is not there.*retriever.replay=false"):
        make(Live(), file, replay=True)
    found = make(Live(), file).search(QUERIES, 3)
    Path(file).chmod(0o400)
    replayed = make(None, file, replay=True)  # type: ignore[arg-type]
    assert replayed.search(QUERIES, 3) == found and replayed.stored(["a"]) is None
    with pytest.raises(RetrieverFailure, match=r"found.sqlite' has no answer to 'veen' \(k = 3"):
        replayed.search(["veen"], 3)
    assert count_searches({})[file]["missed"] == 1


def test_calls_cost_money_and_end_with_the_budget(file: str) -> None:
    live = Live()
    retriever = make(live, file, price=5.0, max_calls=3)
    retriever.search(QUERIES, 1)
    with pytest.raises(BudgetSpent, match="max_calls = 3, is used up: 2 more after 2; .* --set"):
        retriever.search(["a", "b"], 1)
    retriever.search(["a", "orm"], 1)
    assert count_searches({}) == {file: {"calls": 3, "saved": 1, "missed": 0, "cost": 0.015}}
    assert live.asked == ["skarn", "orm", "a"]


def test_it_can_do_what_its_inner_retriever_can(file: str, tmp_path: Path) -> None:
    # Ranks would be asked for each time.
    assert not isinstance(make(Live(), file), RankingRetriever)
    assert not isinstance(make(Live(), file), StoredRetriever)
    (tmp_path / "text").write_text("no database, but a long enough text" * 9)
    with pytest.raises(EndpointFailure, match="--set retriever.file=FILE"):
        make(Live(), str(tmp_path / "text"))
