"""nDCG@10 of retrievers on several collections, in one table, and their differences in pairs.

    python bench_quality.py --data FOLDER bm25 plain=bm25 bm25s hybrid --set plain.title_weight=1

Owns the choice of collections and questions. Figures are those of `searchrl retrieve-eval`. Every
collection below `--data` is read. `--held-out` leaves out the questions on which defaults were
chosen: of pools, those whose source ends in /train (BEIR folders have them in another split).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from searchrl_retrieval.evaluation.collection import Collection, read_collection
from searchrl_retrieval.evaluation.contenders import read_contenders
from searchrl_retrieval.evaluation.judging import Difference, Judged, compare_all, judge

from searchrl import load_plugins, make_retriever_factory
from searchrl.contracts import Metric, Paired

KEY = "ndcg@10"
PLUGIN = "searchrl_retrieval"


def main() -> None:
    """Measure, then print Markdown tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("retrievers", nargs="+", metavar="[LABEL=]NAME")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="LABEL.K=V")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    contenders = read_contenders(args.retrievers, args.set)
    registry = load_plugins([PLUGIN])
    factories = {
        label: make_retriever_factory(registry, one.name, one.settings)
        for label, one in contenders.items()
    }
    judged: dict[str, Mapping[str, Judged]] = {}
    pairs: dict[str, Sequence[Difference]] = {}
    for folder in find_collections(args.data):
        collection = _choose(folder, held_out=args.held_out)
        name = f"{folder.name} ({len(collection.questions)})"
        judged[name] = judge(collection, factories, [10])
        pairs[name] = compare_all(judged[name])
    _print(judged, pairs)
    if args.json is not None:
        figures = {
            name: {label: one.metrics for label, one in found.items()}
            for name, found in judged.items()
        }
        args.json.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")


def find_collections(data: Path) -> list[Path]:
    """The folders below `data` with a corpus and judged questions."""
    corpora = sorted(path.parent for path in data.rglob("corpus.jsonl*"))
    return [
        folder
        for folder in dict.fromkeys(corpora)
        if [*folder.glob("questions.jsonl*"), *folder.glob("qrels")]
    ]


def _choose(folder: Path, *, held_out: bool) -> Collection:
    is_pool = bool([*folder.glob("questions.jsonl*")])
    return read_collection(folder, "dev" if held_out and is_pool else "")


def _print(
    judged: Mapping[str, Mapping[str, Judged]], pairs: Mapping[str, Sequence[Difference]]
) -> None:
    names = list(judged)
    print(f"| {KEY} | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for label in judged[names[0]]:
        cells = []
        for name in names:
            one = judged[name][label].metrics[KEY]
            cells.append(f"{one['value']:.4f}{_ends(one)}")
        print(f"| {label} | " + " | ".join(cells) + " |")
    print("\n| first minus second | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for number, pair in enumerate(pairs[names[0]]):
        cells = []
        for name in names:
            one = pairs[name][number].figures[KEY]
            cells.append(f"{one['value']:+.4f}{_ends(one, '+')}")
        print(f"| {pair.first} − {pair.second} | " + " | ".join(cells) + " |")


def _ends(one: Metric | Paired, sign: str = "") -> str:
    """The interval, if there is one."""
    return f" [{one['low']:{sign}.3f}, {one['high']:{sign}.3f}]" if "low" in one else ""


if __name__ == "__main__":
    main()
