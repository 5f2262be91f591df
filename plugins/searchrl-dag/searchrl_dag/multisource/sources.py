"""The sources of an environment, and the plan of a turn run over them, level by level.

The environment says which passages a source has.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from searchrl import ConfigError, RetrieverFailure
from searchrl.api_client import Raised, call_together
from searchrl.contracts import (
    Passage,
    RetrieverFactory,
    TagProtocol,
    TokenBudget,
    find_passages_problem,
)
from searchrl.envs import Found, SearchSettings, names_in, round_robin
from searchrl.retrieval import IndexCache
from searchrl_dag.plans.plan import Node, Plan, fill
from searchrl_dag.plans.protocol import NodeResult

Corpus = tuple[Hashable, Sequence[Passage]]
"""The name of a corpus, and its passages."""

MAX_NAMES, MAX_WORDS = 2, 12
"""Names or words of a parent's result in a query, at most."""


@dataclass(frozen=True, kw_only=True)
class SourceSettings(SearchSettings):
    """Settings of an environment with sources.

    Attributes:
        topk: passages shown for each query.
        general, news, academic: the retrievers of these sources; null: that of the environment.
        parent_results: queries get the results of their parents; false is the ablation.
        search_timeout_s: seconds of one source for the queries of one level.
    """

    topk: int = 1
    max_turns: int = 2
    general: RetrieverFactory | None = None
    news: RetrieverFactory | None = None
    academic: RetrieverFactory | None = None
    parent_results: bool = True
    search_timeout_s: Annotated[float, Field(gt=0)] = 30.0


class Sources:
    """The retrievers of sources, shared by all instances that are given the same factories.

    `protocol` is `dag`, or reads plans and writes results as it does; `shared` is the retriever of
    sources without one of their own, `owner` the name in failures, such as `env multisource`.
    """

    def __init__(
        self, protocol: TagProtocol, settings: SourceSettings, shared: IndexCache, owner: str
    ) -> None:
        own = {
            "general": settings.general,
            "news": settings.news,
            "academic": settings.academic,
        }
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
        self._indexes: dict[str, IndexCache] = {}
        for name, factory in own.items():
            made = shared if factory is None else factory
            self._indexes[name] = made if isinstance(made, IndexCache) else IndexCache(made)
        self._settings, self._owner = settings, owner

    def build(self, corpus_of: Callable[[str], Corpus]) -> None:
        """Make the retriever of every source, so that a setting that cannot work is told now."""
        for source, indexes in self._indexes.items():
            indexes.build(*corpus_of(source), self._name(source))

    def look_up(
        self,
        turn: str,
        corpus_of: Callable[[str], Corpus],
        order: Callable[[Sequence[Passage]], tuple[Passage, ...]],
        budget: TokenBudget | None,
    ) -> Found:
        """Run the plan of a turn; `corpus_of` and `order` are the environment's."""
        plan = self._read_plan(turn)
        shown = {
            label: result._replace(passages=order(result.passages))
            for label, result in self.run(plan, corpus_of).items()
        }
        observation = self._render(plan, shown, budget)
        lists = [shown[node.label].passages for node in plan.nodes]
        return Found(tuple(round_robin(lists, sum(map(len, lists)))), observation)

    def run(self, plan: Plan, corpus_of: Callable[[str], Corpus]) -> dict[str, NodeResult]:
        """The result of every node, by its label."""
        results: dict[str, NodeResult] = {}

        def text_of(label: str) -> str:
            return parent_text(results[label]) if self._settings.parent_results else ""

        for level in plan.levels:
            queries = {n.label: fill(n.query, plan.parents(n.label), text_of) for n in level}
            for label, passages in self._search(level, queries, corpus_of).items():
                results[label] = NodeResult(queries[label], passages)
        return results

    def _search(
        self,
        level: Sequence[Node],
        queries: Mapping[str, str],
        corpus_of: Callable[[str], Corpus],
    ) -> dict[str, tuple[Passage, ...]]:
        """One batch for each source, all sources at once."""
        labels_by_source: dict[str, list[str]] = {}
        for node in level:
            labels_by_source.setdefault(node.source, []).append(node.label)
        calls = []
        for source, labels in labels_by_source.items():
            wanted = [queries[label] for label in labels]
            ask = functools.partial(self._ask, source, wanted, corpus_of)
            calls.append((ask, self._name(source)))
        passages: dict[str, tuple[Passage, ...]] = {}
        outcomes = call_together(calls, timeout_s=self._settings.search_timeout_s)
        for (source, labels), outcome in zip(labels_by_source.items(), outcomes, strict=True):
            if isinstance(outcome, Raised):
                raise self._explain(source, outcome.error) from outcome.error
            passages |= dict(zip(labels, outcome.value, strict=True))
        return passages

    def _ask(
        self, source: str, queries: list[str], corpus_of: Callable[[str], Corpus]
    ) -> list[tuple[Passage, ...]]:
        retriever = self._indexes[source].get(*corpus_of(source))
        results = retriever.search(queries, self._settings.topk)
        if not isinstance(results, Sequence) or len(results) != len(queries):
            raise RetrieverFailure(f"{self._name(source)}: expected one list of passages per query")
        if problems := list(filter(None, map(find_passages_problem, results))):
            raise RetrieverFailure(f"{self._name(source)} returned for a query {problems[0]}")
        return [tuple(passages[: self._settings.topk]) for passages in results]

    def _name(self, source: str) -> str:
        return f"{self._owner}, source {source}"

    def _explain(self, source: str, error: BaseException) -> BaseException:
        """A failure that names the source; Ctrl-C and failures that say enough stay."""
        if isinstance(error, RetrieverFailure) or not isinstance(error, Exception | SystemExit):
            return error
        return RetrieverFailure(f"{self._name(source)} raised {type(error).__name__}: {error}")


def parent_text(result: NodeResult) -> str:
    """The new names in the parent's best passage, which stand for it in a child's query.

    New is what the parent's own query does not say. Without new names it is the first new words,
    and nothing if the parent found nothing.

    >>> found = Passage("p", "The mayor of Dalham is Bolena.")
    >>> parent_text(NodeResult("mayor of Dalham", (found,)))
    'Bolena'
    """
    if not result.passages:
        return ""
    best = result.passages[0]
    text = f"{best.title}. {best.text}" if best.title else best.text
    if names := names_in(text, besides=result.query):
        return " ".join(names[:MAX_NAMES])
    known = set(re.findall(r"\w+", result.query.casefold()))
    new = [word for word in re.findall(r"\w+", text) if word.casefold() not in known]
    return " ".join(new[:MAX_WORDS])
