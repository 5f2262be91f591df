"""The tables of `searchrl retrieve-eval`: a row for each retriever, then a row for each pair.

Owns which figures a person sees, and how. `--json` has all of them. Called by the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Column, Table

from searchrl.contracts import Metric, Paired
from searchrl_retrieval.evaluation.judging import Difference, Judged
from searchrl_retrieval.evaluation.measures import ALL_GOLD, SUPPORT_RECALL

TITLES = {"ndcg": "nDCG", "recall": "recall", "mrr": "MRR", "map": "MAP",
          SUPPORT_RECALL: "support recall", ALL_GOLD: "all gold"}  # fmt: skip
"""Names of figures as a person reads them."""

_USUAL = 10
"""The cut-off at which most papers measure."""


def title(key: str) -> str:
    """`ndcg@10` -> `nDCG@10`."""
    name, _, cutoff = key.partition("@")
    return f"{TITLES[name]}@{cutoff}"


def headline(keys: Sequence[str]) -> str:
    """The figure that retrievers are ranked by: nDCG at 10, or at the first cut-off there is."""
    found = [key for key in keys if key.startswith("ndcg@")]
    return f"ndcg@{_USUAL}" if f"ndcg@{_USUAL}" in found else found[0]


def shown_keys(keys: Sequence[str]) -> list[str]:
    """Figures with a column: nDCG, MRR and MAP at one cut-off, what was found at every one.

    The share of gold passages is recall; a pool of multi-hop questions shows it by its own name.
    """
    first = headline(keys)
    cutoff = first.partition("@")[2]
    has_hops = f"{SUPPORT_RECALL}@{cutoff}" in keys
    found = (SUPPORT_RECALL, ALL_GOLD) if has_hops else ("recall",)
    at_each = [key for name in found for key in keys if key.startswith(f"{name}@")]
    return [first, f"mrr@{cutoff}", f"map@{cutoff}", *at_each]


def show_judged(console: Console, judged: Mapping[str, Judged]) -> None:
    """Print the figures of every retriever, the first one with its 95 % interval."""
    first, *others = shown_keys(list(next(iter(judged.values())).metrics))
    columns = [Column("retriever"), Column(f"{title(first)} [95 %]", no_wrap=True)]
    columns += [Column(_over_two_lines(key), justify="right") for key in others]
    columns += [Column("ms a query", justify="right")]
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for label, one in judged.items():
        figures = [f"{one.metrics[key]['value']:.3f}" for key in others]
        table.add_row(label, _with_interval(one.metrics[first]), *figures, f"{one.query_ms:.3g}")
    console.print(table)


def show_differences(console: Console, differences: Sequence[Difference]) -> None:
    """Print how every pair differs in the first figure, question by question."""
    first = headline(list(differences[0].figures))
    heads = ("first", "second", "first minus second [95 %]", "p", "questions")
    table = Table(*heads, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for one in differences:
        found = one.figures[first]
        p = f"{found['p']:.3f}" if found["p"] >= 0.001 else f"{found['p']:.1e}"
        table.add_row(one.first, one.second, _with_interval(found, "+"), p, f"{found['n']}")
    console.print("", f"{title(first)}, question by question", sep="\n")
    console.print(table)


def _with_interval(metric: Metric | Paired, sign: str = "") -> str:
    value = f"{metric['value']:{sign}.3f}"
    if "low" not in metric:
        return value
    return f"{value} [{metric['low']:{sign}.3f}, {metric['high']:{sign}.3f}]"


def _over_two_lines(key: str) -> str:
    words, at, cutoff = title(key).replace(" ", "\n").rpartition("@")
    return f"{words}{at}{cutoff}" if "\n" in words else f"{words}\n{at}{cutoff}"
