"""Running a plan: level by level, the sources of a level at once, with the results of parents.

Owns the order of the searches, the deadline of each, and what a child's query says in place of its
parent. It knows neither tags nor tasks. Called by `env`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from searchrl import RetrieverFailure
from searchrl.api_client import Raised, call_together
from searchrl.contracts import Passage, Retriever, find_passages_problem
from searchrl.envs import names_in
from searchrl_dag.plans.plan import Node, Plan, fill
from searchrl_dag.plans.protocol import NodeResult

MAX_NAMES, MAX_WORDS = 2, 12
"""How much of a parent's result a query holds."""


@dataclass(frozen=True, slots=True)
class PlanRunner:
    """Runs plans over sources.

    Args:
        sources: what makes or finds the retriever of each source.
        topk: passages for each node.
        has_parent_results: whether a query gets the results of its parents; without them, what
            refers to a parent is left out.
        timeout_s: how long one source may take for the queries of one level.
        owner: who is named in failures, such as `env multisource`.
    """

    sources: Mapping[str, Callable[[], Retriever]]
    topk: int
    has_parent_results: bool
    timeout_s: float
    owner: str

    def run(self, plan: Plan) -> dict[str, NodeResult]:
        """The result of every node, by its label.

        Raises:
            RetrieverFailure: a source failed, returned something else than passages, or was late.
        """
        results: dict[str, NodeResult] = {}
        for level in plan.levels:
            queries = {node.label: self._fill(plan, node, results) for node in level}
            for label, passages in self._search(level, queries).items():
                results[label] = NodeResult(queries[label], passages)
        return results

    def _fill(self, plan: Plan, node: Node, results: Mapping[str, NodeResult]) -> str:
        def result(label: str) -> str:
            return parent_text(results[label]) if self.has_parent_results else ""

        return fill(node.query, plan.parents(node.label), result)

    def _search(
        self, level: Sequence[Node], queries: Mapping[str, str]
    ) -> dict[str, tuple[Passage, ...]]:
        """One batch for each source, all sources at once."""
        asked: dict[str, list[str]] = {}
        for node in level:
            asked.setdefault(node.source, []).append(node.label)
        calls = [
            (
                functools.partial(self._ask, source, [queries[label] for label in labels]),
                self._name(source),
            )
            for source, labels in asked.items()
        ]
        found: dict[str, tuple[Passage, ...]] = {}
        outcomes = call_together(calls, timeout_s=self.timeout_s)
        for (source, labels), outcome in zip(asked.items(), outcomes, strict=True):
            if isinstance(outcome, Raised):
                raise self._explain(source, outcome.error) from outcome.error
            found |= dict(zip(labels, outcome.value, strict=True))
        return found

    def _ask(self, source: str, queries: list[str]) -> list[tuple[Passage, ...]]:
        results = self.sources[source]().search(queries, self.topk)
        if not isinstance(results, Sequence) or len(results) != len(queries):
            raise RetrieverFailure(f"{self._name(source)}: expected one list of passages per query")
        if problems := list(filter(None, map(find_passages_problem, results))):
            raise RetrieverFailure(f"{self._name(source)} returned for a query {problems[0]}")
        return [tuple(passages[: self.topk]) for passages in results]

    def _name(self, source: str) -> str:
        return f"{self.owner}, source {source}"

    def _explain(self, source: str, error: BaseException) -> BaseException:
        """A failure that names the source; Ctrl-C and failures that say enough stay."""
        if isinstance(error, RetrieverFailure) or not isinstance(error, Exception | SystemExit):
            return error
        return RetrieverFailure(f"{self._name(source)} raised {type(error).__name__}: {error}")


def parent_text(result: NodeResult) -> str:
    """What a child's query says for its parent: the new names in the parent's best passage.

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
