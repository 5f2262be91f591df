"""`searchrl retrieve-eval`: retrievers on a collection with judged passages, compared in pairs.

Owns the flags and the order in which things are said. What is measured is in `evaluation`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from searchrl import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from searchrl_retrieval.evaluation.collection import Collection
    from searchrl_retrieval.evaluation.judging import Difference, Judged

_FILE = click.Path(dir_okay=False, path_type=Path)


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
    "--per-query", type=_FILE, metavar="FILE",
    help="Write a row for every question and retriever, as JSONL.",
)  # fmt: skip
@click.option("--plot", type=_FILE, metavar="FILE", help="Draw the figures: .svg, .png or .pdf.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="FILE",
    help="A plugin file or module; may be repeated.",
)  # fmt: skip
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object on stdout.")
def retrieve_eval(
    folder: Path,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    split: str,
    cutoffs: tuple[int, ...],
    per_query: Path | None,
    plot: Path | None,
    plugins: tuple[str, ...],
    is_json: bool,
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
        --set plain.title_weight=1 --plot pool.svg --per-query pool.jsonl
    """
    from searchrl import make_retriever_factory
    from searchrl_retrieval.commands.choice import showing_progress
    from searchrl_retrieval.commands.surroundings import load_registry, quiet_stdout
    from searchrl_retrieval.evaluation.collection import read_collection
    from searchrl_retrieval.evaluation.contenders import read_contenders
    from searchrl_retrieval.evaluation.judging import compare_all, judge
    from searchrl_retrieval.evaluation.measures import CUTOFFS
    from searchrl_retrieval.evaluation.plot import draw_judged, ensure_can_draw
    from searchrl_retrieval.evaluation.records import as_json, write_per_query

    with quiet_stdout(is_json) as print_json, showing_progress():
        contenders = read_contenders(names, assignments)
        registry = load_registry(plugins)
        factories = {
            label: make_retriever_factory(registry, one.name, one.settings)
            for label, one in contenders.items()
        }
        if plot is not None:
            ensure_can_draw(plot)
        if per_query is not None and not per_query.absolute().parent.is_dir():
            raise ConfigError(f"--per-query {per_query}: there is no folder '{per_query.parent}'")
        collection = read_collection(folder, split)
        judged = judge(collection, factories, sorted(set(cutoffs)) or CUTOFFS)
        differences = compare_all(judged)
        # First what cannot fail: a full disk must not take the figures with it.
        if is_json:
            print_json(as_json(collection, contenders, judged, differences))
        else:
            _show(collection, judged, differences)
        if per_query is not None:
            write_per_query(per_query, collection, judged)
        if plot is not None:
            draw_judged(plot, _heading(collection), judged)


def _heading(collection: Collection) -> str:
    split = f", split {collection.split}" if collection.split else ""
    counts = f"{len(collection.questions):,} questions, {len(collection.passages):,} passages"
    return f"{collection.path.resolve().name}{split}: {counts}"


def _show(
    collection: Collection, judged: Mapping[str, Judged], differences: Sequence[Difference]
) -> None:
    from rich.console import Console

    from searchrl_retrieval.evaluation.table import show_differences, show_judged

    # In a file or a pipe there is no width that lines must fit.
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
    console.print(_heading(collection))
    for note in collection.notes:
        console.print(f"note: {note}", style="yellow")
    show_judged(console, judged)
    if differences:
        show_differences(console, differences)
