"""Figures of rankings: nDCG, recall, MRR and MAP per question, computed by ir-measures.

It sorts equal scores by id, so a run made of the retrievers' scores would depend on the names of
passages. It is given the ranks instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from searchrl_retrieval.extras import need

CUTOFFS = (5, 10, 100)
"""Ranks at which everything is measured if nobody says."""

MEASURES = {"ndcg": "nDCG", "recall": "R", "mrr": "RR", "map": "AP"}
"""The names of ir-measures by ours."""

SUPPORT_RECALL, ALL_GOLD = "support_recall", "all_gold"

Figures = dict[str, dict[str, float]]
"""Values by the name of a figure (`ndcg@10`) and the id of a question."""

Qrels = Mapping[str, Mapping[str, int]]
"""Grades by the id of a question and the id of a passage; above 0 is relevant."""


def measure(
    qrels: Qrels,
    rankings: Mapping[str, Sequence[str]],
    cutoffs: Sequence[int] = CUTOFFS,
    *,
    has_hops: bool = False,
) -> Figures:
    """Every figure of every judged question, in the order of `qrels`.

    Args:
        qrels: the judged questions. One without a ranking counts as one that found nothing.
        rankings: ids of passages, best first. If an id is there twice, its first place counts.
        cutoffs: ranks at which to measure.
        has_hops: adds `support_recall`, the share of the gold passages that were found, and
            `all_gold`, 1 if every one was. The first is recall under the name it has in training.
    """
    need("measuring retrievers", "eval", "ir_measures")
    import ir_measures

    wanted = {
        ir_measures.parse_measure(f"{theirs}@{cutoff}"): f"{ours}@{cutoff}"
        for cutoff in cutoffs
        for ours, theirs in MEASURES.items()
    }
    figures: Figures = {name: {} for name in wanted.values()}
    judged = {question: dict(relevant) for question, relevant in qrels.items()}
    run = {
        question: {passage: -float(rank) for rank, passage in enumerate(dict.fromkeys(ids), 1)}
        for question, ids in rankings.items()
    }
    for one in ir_measures.iter_calc(list(wanted), judged, run):
        figures[wanted[one.measure]][one.query_id] = float(one.value)
    if has_hops:
        for cutoff in cutoffs:
            recall = figures[f"recall@{cutoff}"]
            figures[f"{SUPPORT_RECALL}@{cutoff}"] = recall
            figures[f"{ALL_GOLD}@{cutoff}"] = {q: float(share == 1) for q, share in recall.items()}
    return {name: {q: values[q] for q in qrels} for name, values in figures.items()}
