"""Looks of figures: which a person sees, their order, digits, trends, and the one table of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise

from rich.table import Column, Table

from searchrl.contracts import Metric
from searchrl.rewards.expression import HEADLINES

Figures = Mapping[str, Metric]

LABELS = {
    "passive": "without search",
    "tool_calls": "tool calls/episode",
    "em_forced": "em, search first",
    "em_gain": "em, above search first",
    "searches": "searches/episode",
    "kl": "KL to start",
    "clip_frac": "clip fraction",
    "dead_groups": "groups of one reward",
    "token_accuracy": "token accuracy",
    "tokens_per_s": "tokens/s",
    "episodes_per_s": "episodes/s",
    "least_action_p": "least likely action",
    "invalid_turns": "invalid turns",
    "turns": "turns/episode",
}
"""Names that a person understands better than the key."""

_BEHAVIOUR = ("passive", "tool_calls")
_WHILE_NOT_ZERO = ("invalid_turns", "failed", "unscored", "skipped_steps")
"""Shown only if one of the values is not 0."""
_LEARNING = (
    *("kl", "clip_frac", "entropy", "least_action_p", "dead_groups", "loss", "token_accuracy"),
    *("tokens_per_s", "episodes_per_s"),
)
"""Figures of the update, shown below those of the agent."""
_NOISE = {"kl": 0.1, "clip_frac": 0.05, "loss": 1e-3, "entropy": -1, "tokens_per_s": -1}
"""Values of the update below these say nothing to a reader; of others, a value of 0."""

_IS_REPEATED = re.compile(r"(pass|avg)@\d+").fullmatch
_BLOCKS = "▁▂▃▄▅▆▇█"


def make_table(
    head: str,
    columns: Iterable[str],
    rows: Mapping[str, Sequence[str]],
    *,
    name: Callable[[str], str] | None = None,
    can_wrap: bool = False,
) -> Table:
    """A table of figures, as every command prints it: the cells by key, below `head` and `columns`.

    `name` is what is shown of a key, by default its `label`; with `can_wrap`, cells may break.
    """
    names = Column(head, overflow="fold", min_width=min(24, max(map(len, rows), default=0)))
    cells = [Column(name, no_wrap=not can_wrap) for name in columns]
    table = Table(names, *cells, box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for key, row in rows.items():
        table.add_row((name or label)(key), *row)
    return table


def chosen_keys(
    columns: Iterable[Figures],
    history: Mapping[str, Sequence[float]] | None = None,
    *,
    details: bool = False,
) -> list[str]:
    """The figures that have a row, in order: the whole, then what it is judged by, by kind.

    `history` holds the values of training so far: figures of the update that are noise in it have
    no row. With `details`, every figure has one.
    """
    everything = list(columns)
    keys = list(dict.fromkeys(key for one in everything for key in one))
    components = []
    for one in everything:
        # `summarise` puts the components between `reward` and these.
        end = next(
            (k for k in (*_BEHAVIOUR, "turns", "failed_retrieval", "failed") if k in one), None
        )
        components += list(one)[: list(one).index(end)] if end else []
    main = next((name for name in HEADLINES if any(key.startswith(f"{name}/") for key in keys)), "")
    values = history or {}
    groups: list[Iterable[str]] = [
        ["reward"],
        [key for key in keys if key in (*components, "em_forced", "em_gain") or _IS_REPEATED(key)],
        [key for key in keys if key.startswith(f"{main}/") and is_kind(key)],
        [key for key in keys if key.endswith(("/reward", "/em", "/passive"))],  # of several tasks
        _BEHAVIOUR,
        [k for k in _WHILE_NOT_ZERO if any(k in one and one[k]["value"] for one in everything)],
        [key for key in _LEARNING if not _is_noise(key, values.get(key, ()))],
        keys if details else (),
    ]
    return [key for key in dict.fromkeys(chain(*groups)) if key in keys]


def _is_noise(key: str, values: Sequence[float]) -> bool:
    return bool(values) and all(abs(value) < _NOISE.get(key, 1e-9) for value in values)


def label(key: str) -> str:
    """The name of a metric as a person reads it."""
    return LABELS.get(key, key)


def is_kind(key: str) -> bool:
    """True for a headline of one kind of task."""
    head, slash, kind = key.partition("/")
    return bool(slash) and head in HEADLINES and not kind.startswith("difficulty.")


def format_value(key: str, value: float) -> str:
    """A value with the digits that mean something."""
    if key == "tokens_per_s" or abs(value) >= 1000:
        return f"{value:,.0f}"
    if key in ("kl", "loss") and value != 0 and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:.3f}"


def format_metric(key: str, metrics: Figures, *, is_bare: bool = False) -> str:
    """A metric with its 95 % interval, if it has one and `is_bare` is off; — if not measured."""
    if key not in metrics:
        return "—"
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


def format_duration(seconds: float) -> str:
    """`8.4` → `8 s`, `75` → `1 min 15 s`, `3700` → `1 h 1 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
