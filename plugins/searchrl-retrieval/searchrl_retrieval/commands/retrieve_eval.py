"""`searchrl retrieve-eval`: retrievers on a collection with judged passages, compared in pairs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from searchrl import ConfigError, make_retriever_factory, parse_sets, suggest
from searchrl.contracts import Metric, Paired
from searchrl_retrieval.commands.choice import JSON, PLUGIN, load_registry, working
from searchrl_retrieval.evaluation.collection import Collection, read_collection
from searchrl_retrieval.evaluation.judging import Difference, Measured, compare_all, judge
from searchrl_retrieval.evaluation.measures import ALL_GOLD, CUTOFFS, SUPPORT_RECALL

EVERY = "retriever"
"""Settings under this name go to every retriever, as in all other commands."""


class Contender(NamedTuple):
    """A registered retriever and its settings."""

    name: str
    settings: dict[str, Any]


def read_contenders(names: Sequence[str], assignments: Sequence[str]) -> dict[str, Contender]:
    """The retrievers by label: `bm25`, or `plain=bm25` for one with settings of its own.

    >>> read_contenders(["bm25", "plain=bm25"], ["plain.title_weight=1"])["plain"]
    Contender(name='bm25', settings={'title_weight': 1})
    """
    contenders: dict[str, Contender] = {}
    for text in names:
        label, is_labelled, name = text.partition("=")
        if not label or label == EVERY or label in contenders or (is_labelled and not name):
            raise ConfigError(
                f"cannot use --retriever {text!r}: expected NAME, or LABEL=NAME with a label of "
                f"its own other than '{EVERY}', such as --retriever other={name or label}"
            )
        contenders[label] = Contender(name or label, {})
    given = parse_sets(assignments)
    for label, settings in given.items():
        if label != EVERY and label not in contenders:
            raise ConfigError(
                f"--set {label}.… is for none of the retrievers; expected {EVERY}.KEY=VALUE for "
                f"all, or {names[0]}.KEY=VALUE for one.{suggest(label, [*contenders, EVERY])}"
            )
        if not isinstance(settings, dict):
            raise ConfigError(f"cannot read --set {label}={settings}: expected {label}.KEY=VALUE")
    for label, one in contenders.items():
        one.settings.update(given.get(EVERY, {}) | given.get(label, {}))
    return contenders


@click.command("retrieve-eval")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--retriever", "names", multiple=True, required=True, metavar="[LABEL=]NAME",
    help="A retriever by registered name; repeat it to compare several.",
)  # fmt: skip
@click.option(
    "--set", "assignments", multiple=True, metavar="LABEL.K=V",
    help="A setting of one retriever, or of all as retriever.K=V; may be repeated.",
)  # fmt: skip
@click.option(
    "--split", default="", metavar="NAME",
    help="qrels/NAME.tsv, test by default; else the questions whose source ends in /NAME.",
)  # fmt: skip
@click.option(
    "--k", "cutoffs", multiple=True, type=click.IntRange(1, 10_000), metavar="K",
    help="A cut-off; may be repeated. 5, 10 and 100 by default.",
)  # fmt: skip
@click.option(
    "--per-query", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write a row for every question and retriever, as JSONL.",
)  # fmt: skip
@PLUGIN
@JSON
def retrieve_eval(
    folder: Path,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    split: str,
    cutoffs: tuple[int, ...],
    per_query: Path | None,
    plugins: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure retrievers on questions with judged passages, and compare them in pairs.

    DIR is a BEIR folder (corpus.jsonl, queries.jsonl, qrels/test.tsv), a folder of questions that
    name their gold passages (corpus.jsonl, questions.jsonl with supporting_ids), or an original
    file of HotpotQA, 2WikiMultihopQA or MuSiQue; each file also as .gz. Figures are those of
    ir-measures, with 95 % intervals over questions.

    \b
    Examples:
      searchrl retrieve-eval data/scifact --retriever bm25 --retriever random
      searchrl retrieve-eval data/pool --retriever bm25 --retriever plain=bm25 \\
        --set plain.title_weight=1 --per-query pool.jsonl
    """
    with working(is_json=as_json) as print_json:
        contenders = read_contenders(names, assignments)
        registry = load_registry(plugins)
        factories = {
            label: make_retriever_factory(registry, one.name, one.settings)
            for label, one in contenders.items()
        }
        if per_query is not None and not per_query.absolute().parent.is_dir():
            raise ConfigError(f"--per-query {per_query}: there is no folder '{per_query.parent}'")
        collection = read_collection(folder, split)
        judged = judge(collection, factories, sorted(set(cutoffs)) or CUTOFFS)
        differences = compare_all(judged)
        # First what cannot fail: a full disk must not take the figures with it.
        if as_json:
            print_json(_as_json(collection, contenders, judged, differences))
        else:
            _show(collection, judged, differences)
        if per_query is not None:
            _write_rows(per_query, collection, judged)


def _show(
    collection: Collection, judged: Mapping[str, Measured], differences: Sequence[Difference]
) -> None:
    """A row for each retriever, then one for each pair. `--json` has all figures."""
    from rich.console import Console
    from rich.table import Table

    # In a file or a pipe there is no width that lines must fit.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    split = f", split {collection.split}" if collection.split else ""
    counts = f"{len(collection.questions):,} questions, {len(collection.passages):,} passages"
    console.print(f"{collection.path.resolve().name}{split}: {counts}")
    for note in collection.notes:
        console.print(f"note: {note}", style="yellow")
    first, *others = choose_columns(list(next(iter(judged.values())).metrics))
    table = Table("retriever", f"{first} [95 %]", *others, "ms a query", box=None)
    for label, one in judged.items():
        figures = [f"{one.metrics[key]['value']:.3f}" for key in others]
        table.add_row(label, _with_interval(one.metrics[first]), *figures, f"{one.query_ms:.3g}")
    console.print(table)
    if differences:
        table = Table("first", "second", "first minus second [95 %]", "p", "questions", box=None)
        for pair in differences:
            paired = pair.figures[first]
            p = f"{paired['p']:.3f}" if paired["p"] >= 0.001 else f"{paired['p']:.1e}"
            table.add_row(pair.first, pair.second, _with_interval(paired, "+"), p, f"{paired['n']}")
        console.print("", f"{first}, question by question", table, sep="\n")


def choose_columns(keys: Sequence[str]) -> list[str]:
    """Figures with a column: nDCG, MRR and MAP at one cut-off, recall at every one.

    Retrievers are ranked by the first: nDCG at 10, or at the first cut-off there is. A pool of
    multi-hop questions shows recall by the name that it has in training.
    """
    ndcg = [key for key in keys if key.startswith("ndcg@")]
    first = "ndcg@10" if "ndcg@10" in ndcg else ndcg[0]
    cutoff = first.partition("@")[2]
    has_hops = f"{SUPPORT_RECALL}@{cutoff}" in keys
    recalls = (SUPPORT_RECALL, ALL_GOLD) if has_hops else ("recall",)
    at_each = [key for name in recalls for key in keys if key.startswith(f"{name}@")]
    return [first, f"mrr@{cutoff}", f"map@{cutoff}", *at_each]


def _with_interval(metric: Metric | Paired, sign: str = "") -> str:
    value = f"{metric['value']:{sign}.3f}"
    if "low" not in metric:
        return value
    return f"{value} [{metric['low']:{sign}.3f}, {metric['high']:{sign}.3f}]"


def _as_json(
    collection: Collection,
    contenders: Mapping[str, Contender],
    judged: Mapping[str, Measured],
    differences: Sequence[Difference],
) -> dict[str, Any]:
    """Figures by retriever, differences by pair, and what was measured."""
    return {
        "collection": {
            "path": str(collection.path),
            "split": collection.split,
            "passages": len(collection.passages),
            "questions": len(collection.questions),
            "notes": list(collection.notes),
        },
        "retrievers": {label: dict(one.metrics) for label, one in judged.items()},
        "settings": {
            label: {"name": one.name, **one.settings} for label, one in contenders.items()
        },
        "seconds": {
            label: {"make_s": one.make_s, "query_ms": one.query_ms} for label, one in judged.items()
        },
        "paired": [one._asdict() for one in differences],
    }


def _write_rows(path: Path, collection: Collection, judged: Mapping[str, Measured]) -> None:
    """Write a row for each question and retriever."""
    with path.open("w", encoding="utf-8") as file:
        for question in collection.questions:
            for label, one in judged.items():
                row = {
                    "query_id": question.id,
                    "retriever": label,
                    **{name: values[question.id] for name, values in one.figures.items()},
                    "question": question.text,
                    "relevant": dict(question.qrels),
                    "found": list(one.rankings[question.id]),
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
