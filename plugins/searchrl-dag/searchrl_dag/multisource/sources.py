"""The sources of an environment: which retriever each has, and the plan of a turn run over them.

Owns what environments with sources share. Which passages a source has is theirs to say; running a
plan is `running`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence

from searchrl import ConfigError
from searchrl.contracts import Passage, Retriever, RetrieverFactory, TagProtocol, TokenBudget
from searchrl.envs import Found, round_robin
from searchrl.retrieval import IndexCache
from searchrl_dag.multisource.running import PlanRunner

Corpus = tuple[Hashable, Sequence[Passage]]
"""The name of a corpus, and its passages."""


class Sources:
    """The retrievers of sources, shared by all instances that are given the same factories.

    Args:
        protocol: `dag`, or one that reads plans and writes results as it does.
        own: the retriever of each source; None: it has none of its own.
        shared: that of the sources without one of their own.
        topk: passages for each query.
        parent_results: whether queries get the results of their parents.
        timeout_s: how long one source may take for the queries of one level.
        owner: who is named in failures, such as `env multisource`.

    Raises:
        ConfigError: the protocol has no plans, or plans with other sources.
    """

    def __init__(
        self,
        protocol: TagProtocol,
        own: Mapping[str, RetrieverFactory | None],
        shared: IndexCache,
        *,
        topk: int,
        parent_results: bool,
        timeout_s: float,
        owner: str,
    ) -> None:
        try:
            planned: Sequence[str] = protocol.sources  # type: ignore[attr-defined]
            self._read_plan, self._render = protocol.read_plan, protocol.render_results  # type: ignore[attr-defined]
        except AttributeError as error:
            raise ConfigError(
                f"{owner} needs plans, and the protocol {protocol.name} has none. Leave the "
                "protocol out, or name dag"
            ) from error
        if unknown := [name for name in planned if name not in own]:
            raise ConfigError(
                f"{owner}: protocol.sources names {unknown[0]!r}, which it does not have; it has "
                + ", ".join(own)
            )
        self._indexes = {
            name: shared if factory is None else _cached(factory) for name, factory in own.items()
        }
        self._topk = topk
        self._parent_results = parent_results
        self._timeout_s = timeout_s
        self._owner = owner

    def build(self, corpus_of: Callable[[str], Corpus]) -> None:
        """Make the retriever of every source now, so that a setting that cannot work is told now.

        Raises:
            ConfigError: a retriever lacks something, such as a key.
            RetrieverFailure: a retriever could not be made.
        """
        for source, indexes in self._indexes.items():
            indexes.build(*corpus_of(source), f"{self._owner}, source {source}")

    def look_up(
        self,
        turn: str,
        corpus_of: Callable[[str], Corpus],
        order: Callable[[Sequence[Passage]], tuple[Passage, ...]],
        budget: TokenBudget | None,
    ) -> Found:
        """Run the plan of a turn; `corpus_of(source)` and `order(passages)` are the environment's.

        Raises:
            RetrieverFailure: a source failed.
        """
        plan = self._read_plan(turn)

        def retriever_of(source: str) -> Retriever:
            return self._indexes[source].get(*corpus_of(source))

        runner = PlanRunner(
            {name: functools.partial(retriever_of, name) for name in self._indexes},
            self._topk,
            self._parent_results,
            self._timeout_s,
            self._owner,
        )
        shown = {
            label: result._replace(passages=order(result.passages))
            for label, result in runner.run(plan).items()
        }
        observation = self._render(plan, shown, budget)
        found = [shown[node.label].passages for node in plan.nodes]
        return Found(tuple(round_robin(found, sum(map(len, found)))), observation)


def _cached(factory: RetrieverFactory) -> IndexCache:
    return factory if isinstance(factory, IndexCache) else IndexCache(factory)
