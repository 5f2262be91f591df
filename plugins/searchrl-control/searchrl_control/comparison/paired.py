"""Two policies on the pooled questions of several collections: paired, and each collection fixed.

Owns what is a stratum: a collection, whose share of the pool is no matter of chance. The statistics
are those of `searchrl.compare`.
"""

from __future__ import annotations

from collections.abc import Mapping

from searchrl import compare
from searchrl.contracts import Paired

ByCollection = Mapping[str, Mapping[str, float]]
"""The name of a collection -> the id of a question -> nDCG@k."""


def compare_pooled(first: ByCollection, second: ByCollection) -> Paired:
    """The first policy minus the second on all questions, each question counting once.

    Raises:
        ValueError: the two were not measured on the same questions, or on none.
    """
    ensure_same(first, second)
    strata = {f"{name}/{one}": name for name, of in first.items() for one in of}
    return compare({"ndcg": _flat(first)}, {"ndcg": _flat(second)}, strata)["ndcg"]


def compare_each(first: ByCollection, second: ByCollection) -> dict[str, Paired]:
    """The same by collection, each alone.

    Raises:
        ValueError: the two were not measured on the same questions.
    """
    ensure_same(first, second)
    return {name: compare({"ndcg": first[name]}, {"ndcg": second[name]})["ndcg"] for name in first}


def ensure_same(first: ByCollection, second: ByCollection) -> None:
    """Raise ValueError if two policies were not measured on the same questions, or on none."""
    asked = [{name: set(values) for name, values in one.items()} for one in (first, second)]
    if asked[0] != asked[1]:
        raise ValueError("two policies can be compared on the same questions only")
    if not any(asked[0].values()):
        raise ValueError("there is no question to compare on")


def _flat(values: ByCollection) -> dict[str, float]:
    return {f"{name}/{one}": value for name, of in values.items() for one, value in of.items()}
