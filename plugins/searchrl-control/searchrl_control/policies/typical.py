"""The usual mean and spread of every sign: what networks see is how far a sign is from it.

Owns the table. One table for all collections, as images have one for all pictures: if each
collection had its own, a network could not tell collections apart by their signs. Measured over
all positions of the training questions of SciFact, HotpotQA, MuSiQue and 2WikiMultihopQA, each of
which counts alike. `benchmarks/measure_signs.py` measures along random episodes; there, on the same
questions, means were within .18 of a spread, and spreads within a quarter.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

TYPICAL: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        # Of a candidate.
        "points_narrow": (0.61, 0.30),
        "points_broad": (0.61, 0.30),
        "points_words": (0.68, 0.27),
        "points_dense": (0.75, 0.22),
        "points_fuse": (0.62, 0.30),
        "points_follow": (0.62, 0.28),
        "points_hop": (0.68, 0.29),
        "rank_narrow": (0.39, 0.28),
        "rank_broad": (0.38, 0.28),
        "rank_words": (0.38, 0.30),
        "rank_dense": (0.28, 0.30),
        "rank_fuse": (0.40, 0.28),
        "rank_follow": (0.37, 0.29),
        "rank_hop": (0.43, 0.35),
        "words": (0.29, 0.14),
        "similar": (0.44, 0.16),
        "similar_gap": (-0.14, 0.13),
        "title_share": (0.35, 0.35),
        "source_gap": (0.30, 0.85),
        "votes": (0.51, 0.28),
        "adds": (0.10, 0.16),
        "named": (0.42, 0.37),
        "named_by_it": (0.44, 0.37),
        "left": (0.32, 0.24),
        "near_kept": (0.49, 0.23),
        # Of a list.
        "gap_second": (0.27, 0.20),
        "gap_last": (0.63, 0.17),
        "spread": (0.20, 0.06),
        "first_three": (0.78, 0.13),
        "words_first": (0.45, 0.14),
        "words_three": (0.36, 0.11),
        "words_mean": (0.26, 0.10),
        "share_first": (0.59, 0.18),
        "share_three": (0.79, 0.15),
        "share_least": (0.37, 0.14),
        "similar_first": (0.56, 0.14),
        "similar_three": (0.48, 0.13),
        "similar_mean": (0.40, 0.12),
        "similar_best": (0.59, 0.13),
        "coherence": (0.41, 0.17),
        "as_words": (0.84, 0.18),
        "as_vectors": (0.48, 0.24),
        "as_before": (0.83, 0.19),
        "is_other_first": (0.09, 0.29),
        "as_before_three": (0.83, 0.22),
        "named_best": (0.95, 0.11),
        "named_new": (0.87, 0.17),
        "named_new_three": (0.79, 0.17),
        "num_named": (1.30, 0.80),
        "named_found": (0.80, 0.25),
        "title_first": (0.70, 0.38),
        "title_second": (0.47, 0.38),
        "title_third": (0.33, 0.32),
        "clarity": (3.13, 0.62),
        # Of a question's terms.
        "terms": (0.99, 0.34),
        "idf_mean": (0.40, 0.07),
        "idf_max": (0.70, 0.11),
        "idf_min": (0.16, 0.06),
        "idf_spread": (0.35, 0.09),
        "idf_sum": (0.73, 0.07),
    }
)
"""The mean and the standard deviation of a sign, by its name."""

FARTHEST = 4.0
"""Standard deviations; what is farther counts as that far."""
