"""How figures look: names, order, formatting, sparklines. Pure functions on metrics.

Owns which metrics a person sees and in which order; everything else is in metrics.jsonl. Used by
the console and by `searchrl eval`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from searchrl.contracts import Metric

LABELS = {
    "passive": "passive rate",
    "em_forced": "em, forced search",
    "searches": "searches/episode",
    "kl": "KL to start",
    "clip_frac": "clip fraction",
    "dead_groups": "dead groups",
    "tokens_per_s": "tokens/s",
    "invalid_turns": "invalid turns",
}
"""Names that are clearer to a person than the key."""

LEARNING = ("kl", "clip_frac", "entropy", "dead_groups", "loss", "grad_norm", "tokens_per_s")
"""What the update says about itself, below what the agent does."""

_HIDDEN = {
    "turns",
    "model_tokens",
    "sample_s",
    "update_s",
    "lr",
    "clip_low_frac",
    "clip_high_frac",
    "ratio_mean",
    "kl_clamped_frac",
    "approx_kl",
    "max_abs_log_ratio",
    "nonfinite_frac",
    "num_rollouts",
    "num_unscored",
    "num_nonfinite",
}
_HIDDEN_WHILE_ZERO = {"failed", "unscored", "invalid_turns"}
_BLOCKS = "▁▂▃▄▅▆▇█"


def shown_keys(metrics: Iterable[Mapping[str, Metric]]) -> list[str]:
    """The keys worth a row, in reading order: reward, components, kinds, behaviour, learning."""
    everything = list(metrics)
    keys = list(dict.fromkeys(key for one in everything for key in one))
    keys = [key for key in keys if _is_shown(key, everything)]
    return sorted(keys, key=_rank)


def _is_shown(key: str, metrics: Sequence[Mapping[str, Metric]]) -> bool:
    name = key.rsplit("/", 1)[-1]
    if "/" in key and not key.startswith("em/") and "/em/" not in key:
        # With several environments: their reward and em; the rest is in metrics.jsonl.
        return name in ("reward", "em", "passive")
    if name in _HIDDEN_WHILE_ZERO:
        return any(one[key]["value"] > 0 for one in metrics if key in one)
    return name not in _HIDDEN


def _rank(key: str) -> int:
    if key in LEARNING:
        return 6 + LEARNING.index(key)
    return (
        0
        if key == "reward"
        else 2
        if key.startswith("em/")
        else 4
        if key == "passive"
        else (5 if key in _HIDDEN_WHILE_ZERO else 3 if "/" in key else 1)
    )


def label(key: str) -> str:
    """The name of a metric as a person reads it."""
    return LABELS.get(key, key)


def format_value(key: str, value: float) -> str:
    """A value with the digits that mean something."""
    if key == "tokens_per_s" or abs(value) >= 1000:
        return f"{value:,.0f}"
    if key in ("kl", "loss") and value != 0 and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:.3f}"


def format_interval(key: str, metric: Metric) -> str:
    """A value with its 95 % interval."""
    low, high = (format_value(key, metric[end]) for end in ("low", "high"))
    value = format_value(key, metric["value"])
    return value if low == high else f"{value} [{low}, {high}]"


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of a metric in at most `width` characters; 0 and 1 are always on the scale.

    >>> sparkline([0.0, 0.5, 1.0], 3)
    '▁▅█'
    """
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges) if b > a]
    low = min(0.0, *means)
    # Small quantities (KL, clip fraction) get a scale of their own.
    high = max(means) if max(means) < 0.1 else max(1.0, *means)
    span = high - low or 1.0
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / span * top)] for value in means)


def format_seconds(seconds: float) -> str:
    """`75` → `1:15`, `3700` → `1:01:40`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
