"""The cost in rank quality of shards that weigh words by their own passages.

    python plugins/searchrl-retrieval/benchmarks/bench_shards.py ../shared/data [--count 200000]

`bm25s` over a whole corpus against the same passages in 2, 4, 8 and 22 shards: dealt out at random,
and cut in the order of the corpus. Differences are by question, with 95 % intervals. `rare`: the
same random shards, with the rarity of a word (idf) counted in the whole corpus. `--count`: every
question is asked of one corpus of so many passages, all real ones and then those of `generated`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
from bench_hybrid import COLLECTIONS
from generated import make_passages, read_real
from measured import print_table
from searchrl_retrieval.bm25s.kind import Bm25sRetriever, make_bm25s
from searchrl_retrieval.evaluation.collection import Collection, read_collection
from searchrl_retrieval.evaluation.measures import Figures, measure
from searchrl_retrieval.shards import ShardsRetriever

from searchrl import compare
from searchrl.contracts import Passage, Retriever

COUNTS = (2, 4, 8, 22)
FIGURES = ("ndcg@10", "recall@100")


def deal(passages: Sequence[Passage], count: int, *, is_random: bool) -> list[list[Passage]]:
    """Passages in `count` parts of a size: at random, or one piece after another."""
    order = list(range(len(passages)))
    if is_random:
        Random(0).shuffle(order)
    return [[passages[at] for at in sorted(part)] for part in np.array_split(order, count)]


def make_shards(parts: Sequence[Sequence[Passage]]) -> ShardsRetriever:
    """A `bm25s` for each part."""
    made = [make_bm25s(part) for part in parts]
    return ShardsRetriever((), shards=[lambda _, one=one: one for one in made])


def weigh_alike(retriever: ShardsRetriever) -> None:
    """Give every shard the rarity of words in all of them."""
    shards = [one for one in retriever.shards if isinstance(one, Bm25sRetriever)]
    held: dict[str, int] = {}
    for shard in shards:
        for word, at in shard._numbers.items():
            held[word] = held.get(word, 0) + int(shard._starts[at + 1] - shard._starts[at])
    total = sum(len(shard.passages) for shard in shards)
    for shard in shards:
        data = np.array(shard._data)
        for word, at in shard._numbers.items():
            within = slice(shard._starts[at], shard._starts[at + 1])
            own = _rarity(within.stop - within.start, len(shard.passages))
            data[within] *= np.float32(_rarity(held[word], total) / own)
        shard._data = data


def _rarity(count: int, total: int) -> float:
    return float(np.log(1 + (total - count + 0.5) / (count + 0.5)))


def judge(collection: Collection, retriever: Retriever, prefix: str) -> Figures:
    """The figures of every question; ids of this collection have the prefix."""
    found = retriever.search([one.text for one in collection.questions], 100)
    ids = [[passage.id.removeprefix(prefix) for passage in one] for one in found]
    return measure(collection.qrels, dict(zip(collection.qrels, ids, strict=True)), (10, 100))


def main() -> None:
    """Print a row for each collection, number of shards and way to deal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with ir/ and multihop/")
    parser.add_argument("--count", type=int, help="passages of one corpus for all questions")
    args = parser.parse_args()
    joined = list(make_passages(read_real(args.data), args.count)) if args.count else []
    rows = []
    for name, (folder, _, split) in COLLECTIONS.items():
        collection = read_collection(args.data / folder, "test" if split == "test" else "")
        passages = joined or collection.passages
        prefix = f"{Path(folder).name}-" if joined else ""
        whole = judge(collection, make_bm25s(passages), prefix)
        for count in COUNTS:
            shards = make_shards(deal(passages, count, is_random=True))
            ways = {"random": judge(collection, shards, prefix)}
            weigh_alike(shards)
            ways["rare"] = judge(collection, shards, prefix)
            ordered = make_shards(deal(passages, count, is_random=False))
            ways["in order"] = judge(collection, ordered, prefix)
            for way, figures in ways.items():
                row = {"collection": name, "shards": count, "dealt": way}
                for figure, one in compare(figures, whole).items():
                    if figure in FIGURES:
                        ends = f" [{one['low']:+.3f}, {one['high']:+.3f}]" if "low" in one else ""
                        row[f"less {figure}"] = f"{one['value']:+.4f}{ends}"
                rows.append(row)
    print_table(rows, {key: key for key in rows[0]})


if __name__ == "__main__":
    main()
