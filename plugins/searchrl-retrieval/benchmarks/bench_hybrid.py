"""The default weight of `hybrid`: chosen on training questions, judged on other questions.

The training questions are those of SciFact, HotpotQA and MuSiQue; 2WikiMultihopQA has none. For
every weight, the nDCG@10 of the fusion less that of the better part is taken, question by question,
with the lower end of its 95 % interval. The weight is chosen whose lowest of the three ends is the
highest: `hybrid` should do harm nowhere, and one weight has to serve every collection.

    python plugins/searchrl-retrieval/benchmarks/bench_hybrid.py ../shared/data
    python plugins/searchrl-retrieval/benchmarks/bench_hybrid.py ../shared/data --vector dense

Vectors of `dense` stay in the user's cache folder (SEARCHRL_INDEXES names another), so that nothing
is embedded twice. What the default gives is in docs/how-to/retrieval.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from searchrl_retrieval.bm25s.kind import make_bm25s
from searchrl_retrieval.dense.kinds import make_dense, make_static
from searchrl_retrieval.evaluation.collection import Collection, read_collection
from searchrl_retrieval.evaluation.measures import measure
from searchrl_retrieval.fusion import fuse
from searchrl_retrieval.hybrid import VECTOR_WEIGHT

from searchrl import compare
from searchrl.contracts import Paired, Passage

COLLECTIONS = {
    "SciFact": ("ir/scifact", "train", "test"),
    "HotpotQA": ("multihop/hotpotqa_distractor_pool", "train", "dev"),
    "MuSiQue": ("multihop/musique_pool", "train", "dev"),
    "2Wiki": ("multihop/2wikimultihopqa_pool", "", "dev"),
}
"""Name -> its folder, the split that chooses (none: "") and the split that is reported."""

WEIGHTS = [round(float(w), 2) for w in np.arange(0.05, 1, 0.05)]
DEPTH = 100
"""Passages that are read of each part: the default of `hybrid`."""
NDCG = "ndcg@10"

VECTORS = {"static": make_static, "dense": make_dense}

Rankings = Mapping[str, Sequence[Passage]]
Values = dict[str, float]
"""nDCG@10 by question."""


class Parts(NamedTuple):
    """The questions of a split, what each part finds for them, and how good that is."""

    collection: Collection
    vector: Rankings
    bm25: Rankings
    of_vector: Values
    of_bm25: Values

    @property
    def better(self) -> Values:
        """nDCG@10 of the part whose mean is higher."""
        return max(self.of_bm25, self.of_vector, key=_mean)

    def fused(self, weight: float) -> Values:
        """nDCG@10 of the fusion in which the vectors have this share."""
        weights = (weight, 1 - weight)
        rankings = {
            one.id: fuse((self.vector[one.id], self.bm25[one.id]), weights)
            for one in self.collection.questions
        }
        return _judge(self.collection, rankings)


def search_parts(data: Path, name: str, split: str, vector: str) -> Parts:
    """Search a split of a collection with both parts."""
    collection = read_collection(data / COLLECTIONS[name][0], split)
    texts = [one.text for one in collection.questions]
    found = [
        dict(zip(collection.qrels, make(collection.passages).search(texts, DEPTH), strict=True))
        for make in (VECTORS[vector], make_bm25s)
    ]
    return Parts(collection, *found, *(_judge(collection, one) for one in found))


def choose(training: Sequence[Parts]) -> tuple[float, dict[float, list[float]]]:
    """The chosen weight, and for every weight the lower end of the gain on each collection."""
    ends = {
        weight: [_gain(parts.fused(weight), parts.better).get("low", 0.0) for parts in training]
        for weight in WEIGHTS
    }
    return max(ends, key=lambda weight: min(ends[weight])), ends


def main() -> int:
    """Print the choice, then the figures of the default; 1 if it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the folder with ir/ and multihop/")
    parser.add_argument("--vector", choices=VECTORS, default="static")
    args = parser.parse_args()
    training = [
        search_parts(args.data, name, split, args.vector)
        for name, (_, split, _) in COLLECTIONS.items()
        if split
    ]
    chosen, ends = choose(training)
    print(f"training questions choose the weight {chosen}")
    for weight, of_weight in ends.items():
        print(f"  {weight:.2f}  lower ends {' '.join(f'{low:+.4f}' for low in of_weight)}")
    print(f"\nother questions, with the default weight {VECTOR_WEIGHT}:")
    print(f"{'':10}{'n':>5}{args.vector:>9}{'bm25s':>9}{'hybrid':>9}   less the better part")
    lows = []
    for name, (_, _, split) in COLLECTIONS.items():
        parts = search_parts(args.data, name, split, args.vector)
        hybrid = parts.fused(VECTOR_WEIGHT)
        gain = _gain(hybrid, parts.better)
        lows.append(gain.get("low", 0.0))
        means = "".join(f"{_mean(v):9.4f}" for v in (parts.of_vector, parts.of_bm25, hybrid))
        ends = f" [{gain['low']:+.4f}, {gain['high']:+.4f}]" if "low" in gain else " (none differ)"
        print(f"{name:10}{gain['n']:5}{means}   {gain['value']:+.4f}{ends}")
    holds = min(lows) > -0.01 and sum(low > 0 for low in lows) >= 2
    print(f"lower ends above -0.01 everywhere and above 0 on two: {'yes' if holds else 'NO'}")
    return 0 if holds else 1


def _judge(collection: Collection, rankings: Rankings) -> Values:
    ids = {question: [passage.id for passage in found] for question, found in rankings.items()}
    return measure(collection.qrels, ids, (10,))[NDCG]


def _gain(values: Values, other: Values) -> Paired:
    """The mean difference and its interval, over questions; without one where hardly any differ."""
    return compare({NDCG: values}, {NDCG: other})[NDCG]


def _mean(values: Values) -> float:
    return sum(values.values()) / len(values)


if __name__ == "__main__":
    sys.exit(main())
