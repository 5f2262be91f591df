"""The retriever `shards`: one corpus that several retrievers hold in parts, searched as one.

A shard is mostly `http`; behind `searchrl serve-retriever`, this retriever is the front of a group
of servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from searchrl import ConfigError, RetrieverFailure
from searchrl.api_client import Raised, call_together
from searchrl.contracts import Passage, Retriever, RetrieverFactory, StoredRetriever
from searchrl_retrieval.hybrid import ask


class ShardsRetriever:
    """Asks all shards at once; safe to use from several threads.

    Args:
        passages: given to every shard; those with passages of their own need none.
        shards: retrievers with the same settings, because their scores are compared.
    """

    def __init__(self, passages: Sequence[Passage], *, shards: list[RetrieverFactory]) -> None:
        if not shards:
            raise ConfigError(
                "retriever shards: retriever.shards is empty; name at least one retriever: "
                "[{name: http, url: 'http://localhost:8001/retrieve'}]"
            )
        self.shards: list[Retriever] = [make(passages) for make in shards]

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the `k` passages with the best scores per query, each id once.

        Equal scores stand in the order of the shards. If one fails or gives no scores, the search
        fails: nothing is left out.
        """
        if k <= 0:
            return [[] for _ in queries]
        calls = [(partial(ask, "shards", one, queries, k), "shard") for one in self.shards]
        results = []
        for place, outcome in enumerate(call_together(calls, timeout_s=None)):
            if isinstance(outcome, Raised):
                text = f"retriever shards: shards.{place}: {outcome.error}"
                raise RetrieverFailure(text) from outcome.error
            if {passage.score for ranking in outcome.value for passage in ranking} == {0.0}:
                raise RetrieverFailure(
                    f"retriever shards: shards.{place}: every score is 0, so its passages cannot "
                    "be compared; its server must send scores when asked with return_scores"
                )
            results.append(outcome.value)
        return [_merge(rankings, k) for rankings in zip(*results, strict=True)]

    def stored(self, ids: Sequence[str]) -> Sequence[Passage | None] | None:
        """The passages of these ids; None for each that all shards lack; None: one cannot tell."""
        # Every shard is asked, because one behind a server may have no passages.
        held = [s.stored(ids) if isinstance(s, StoredRetriever) else None for s in self.shards]
        known: dict[str, Passage] = {}
        for passages in held:
            if passages is None:
                return None
            known |= {passage.id: passage for passage in passages if passage is not None}
        return [known.get(one) for one in ids]


def _merge(rankings: Sequence[Sequence[Passage]], k: int) -> list[Passage]:
    best = sorted(chain.from_iterable(rankings), key=lambda passage: -passage.score)
    once: dict[str, Passage] = {}
    for passage in best:
        once.setdefault(passage.id, passage)
    return [*once.values()][:k]
