"""How figures look: names, order, formatting, sparklines. Pure functions on metrics.

Owns which metrics a person sees and in which order; all others are in metrics.jsonl only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from searchrl.contracts import Metric

LABELS = {
    "passive": "passive rate",
    "tool_calls": "tool calls/episode",
    "em_forced": "em, forced search",
    "searches": "searches/episode",
    "kl": "KL to start",
    "clip_frac": "clip fraction",
    "dead_groups": "dead groups",
    "token_accuracy": "token accuracy",
    "tokens_per_s": "tokens/s",
    "episodes_per_s": "episodes/s",
    "least_action_p": "least likely action",
    "invalid_turns": "invalid turns",
    "turns": "turns/episode",
}
"""Names that a person understands better than the key."""

LEARNING = (
    *("kl", "clip_frac", "entropy", "least_action_p", "dead_groups", "loss", "token_accuracy"),
    *("tokens_per_s", "episodes_per_s"),
)
"""Metrics of the update, shown below those of the agent."""

_BEHAVIOUR = ("passive", "tool_calls")
"""Shown below the kinds and slices of tasks, where there are any."""

_NOISE = {"kl": 0.1, "clip_frac": 0.05, "loss": 1e-3}
"""Of the update: values below these say nothing to a reader, so they get no row."""
_MEANT = ("entropy", "least_action_p", "tokens_per_s", "episodes_per_s")
"""Of the update: shown even while they stay as they are."""

_WHILE_NOT_ZERO = ("invalid_turns", "failed", "unscored", "skipped_steps")
"""Shown only if one of the values is not 0."""

_ACTION = "action/"
"""What the share of an action among all choices begins with."""
CHOOSES = "chooses "
"""The same for a person."""

NOT_MEASURED = "—"

_BLOCKS = "▁▂▃▄▅▆▇█"


def shown_keys(
    metrics: Iterable[Mapping[str, Metric]],
    history: Mapping[str, Sequence[float]] | None = None,
) -> list[str]:
    """The keys worth a row, in order: reward, components, kinds, slices, behaviour, learning.

    Behaviour is searches and calls or, of a policy without tokens, the share of each action.

    `history` holds the values of training so far. With it, figures of the update that are noise or
    stay 0 are left out; without it, every one is listed.
    """
    everything = list(metrics)
    groups: list[list[str]] = [[] for _ in range(7)]
    for one in everything:
        names = list(one)
        # `summarise` puts the components between `reward` and these.
        end = next((key for key in (*_BEHAVIOUR, "turns") if key in one), None)
        components = names[: names.index(end)] if end else []
        for key in names:
            groups[_place(key, components)].append(key)
    if any(map(is_share, groups[4])):
        # How long such an episode is is what its policy decides.
        groups[4] += [key for key in groups[6] if key == "turns"]
    groups[5] = [k for k in _WHILE_NOT_ZERO if any(k in m and m[k]["value"] for m in everything)]
    learning = dict.fromkeys(groups[6])
    values = history or {}
    groups[6] = [k for k in LEARNING if k in learning and not _is_idle(k, values.get(k, ()))]
    return list(dict.fromkeys(key for group in groups for key in group))


def _is_idle(key: str, values: Sequence[float]) -> bool:
    """Whether the values of a figure of the update so far are noise, or all 0."""
    if not values or key in _MEANT:
        return False
    return all(abs(value) < _NOISE.get(key, 1e-9) for value in values)


def _place(key: str, components: Sequence[str]) -> int:
    """Which group of rows a key belongs to; the last one holds everything else."""
    if key == "reward":
        return 0
    if key in components or key == "em_forced":
        return 1
    if is_kind(key):
        return 2
    if is_share(key):
        return 4
    if "/" in key:
        # Several environments: the main metrics of each; the others are in metrics.jsonl.
        return 3 if key.rsplit("/", 1)[-1] in ("reward", "em", "passive") else 6
    return 4 if key in _BEHAVIOUR else 6


def label(key: str) -> str:
    """The name of a metric as a person reads it."""
    if is_share(key):
        return f"{CHOOSES}{key.removeprefix(_ACTION)}"
    return LABELS.get(key, key)


def is_kind(key: str) -> bool:
    """Whether it is the figure of one kind of task."""
    return key.startswith(("em/", "env/", "reward/"))


def is_share(key: str) -> bool:
    """Whether it is the share of an action among all choices."""
    return key.startswith(_ACTION)


def format_value(key: str, value: float) -> str:
    """A value with the digits that mean something."""
    if key == "episodes_per_s":
        return f"{value:,.1f}"
    if key == "tokens_per_s" or abs(value) >= 1000:
        return f"{value:,.0f}"
    if key in ("kl", "loss", "least_action_p") and value != 0 and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:.3f}"


def format_metric(key: str, metrics: Mapping[str, Metric], *, is_bare: bool = False) -> str:
    """A metric with its 95 % interval, if it has one and `is_bare` is off; — if not measured."""
    if key not in metrics:
        return NOT_MEASURED
    metric = metrics[key]
    value = format_value(key, metric["value"])
    if is_bare or "low" not in metric:
        return value
    low, high = format_value(key, metric["low"]), format_value(key, metric["high"])
    # Older runs have an interval without width where there is no sampling error.
    return value if low == high else f"{value} [{low}, {high}]"


def sparkline(values: Sequence[float], width: int) -> str:
    """The trend of a metric in at most `width` characters; 0 and 1 are always on the scale.

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


def format_duration(seconds: float) -> str:
    """`8.4` → `8 s`, `75` → `1 min 15 s`, `3700` → `1 h 1 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
