"""What a list is worth: nDCG@k and recall@k, as ir-measures has them.

Owns the two formulas (Järvelin and Kekäläinen 2002, with the grade itself as the gain):

    DCG@k  = sum over ranks r = 1 … k of grade(r) / log2(r + 1)
    nDCG@k = DCG@k / DCG@k of the best list

The best list is made of *all* relevant passages that were judged, found or not, in the corpus or
not. Normalised by the list that was found, a search that finds one passage of ten would be perfect.
A test holds both against ir-measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

CUTOFF = 10


def ndcg(ranking: Sequence[str], qrels: Mapping[str, int], k: int = CUTOFF) -> float:
    """nDCG@k of a list of ids, best first; 0 without a relevant passage.

    If an id is in the list twice, its first place counts, and the others take no place.

    >>> round(ndcg(["a", "b", "c"], {"a": 1, "c": 1, "missing": 1}), 4)
    0.7039
    """
    shown = list(dict.fromkeys(ranking))[:k]
    gained = _dcg([max(qrels.get(name, 0), 0) for name in shown])
    best = _dcg(sorted((grade for grade in qrels.values() if grade > 0), reverse=True)[:k])
    return gained / best if best > 0 else 0.0


def _dcg(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(place + 2) for place, grade in enumerate(grades))


def recall(ranking: Sequence[str], qrels: Mapping[str, int], k: int = CUTOFF) -> float:
    """The share of all relevant passages that are among the first k; 0 without any."""
    relevant = {name for name, grade in qrels.items() if grade > 0}
    shown = list(dict.fromkeys(ranking))[:k]
    return len(relevant.intersection(shown)) / len(relevant) if relevant else 0.0
