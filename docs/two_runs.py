"""A healthy run beside one that collapsed: the figures and tables of read-a-run.md.

Owns what stands between `<!-- recorded: NAME -->` and `<!-- end -->` in that page, from what is
kept of the two runs. `shoot_pages.py` makes its pictures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keep_run import NUM_TASKS
from recorded import DOCS, Recorded
from recorded_pages import (
    as_prose,
    as_table,
    bare,
    controls,
    fence,
    fill,
    listed,
    scores,
    versions,
)

from searchrl import Run
from searchrl.report.patterns import find_pattern
from searchrl.report.tokens import open_texts
from searchrl.screen.figures import format_metric, label

PAGE = DOCS / "how-to" / "read-a-run.md"

HELD_OUT = ("reward", "em", "em_forced", "searched", "searches", "format")
"""Rows of the table of evaluations."""
CURVES = ("reward", "em", "searched")
"""What the table of training steps shows of each run."""
AT = (1, 2, 3, 5, 8, 12)
"""Steps that it shows, besides the last one."""

GROUP = "step000001/prompt0"
"""The group that the page looks at: some of its rollouts search twice and are right."""
RIGHT = f"{GROUP}/2"
"""One of these."""


def commands(healthy: Recorded, collapsed: Recorded) -> str:
    """Both commands, and with which code."""
    lines = [
        f"healthy    {healthy.record['command']}",
        f"collapsed  {collapsed.record['command']}",
    ]
    text = as_prose(
        f"(The embedded tiny model, {healthy.max_steps} steps. Healthy: {versions(healthy)}; "
        f"collapsed: {versions(collapsed)}.)"
    )
    return f"{fence(lines)}\n\n{text}"


def kept(healthy: Recorded, collapsed: Recorded) -> str:
    """Which rollouts the repository has of them."""
    steps, others = (sorted({r["step"] for r in _train(run)}) for run in (healthy, collapsed))
    more = [step for step in others if step not in steps]
    return as_prose(
        "All figures of both runs are in these folders. Of their rollouts there are those of steps "
        f"{listed(steps)}, of the collapsed run also those at which an alarm sounded "
        f"(step {listed(more)}), and the first {NUM_TASKS} tasks of the evaluations before and "
        "after."
    )


def alarms(healthy: Recorded, collapsed: Recorded) -> str:
    """What alarms said, by run."""
    return "\n".join(
        f"- {name}: {_sounded(run)}"
        for name, run in (("The healthy run", healthy), ("The collapsed run", collapsed))
    )


def _sounded(run: Recorded) -> str:
    said = [
        f'`{one["alarm"]}` at step {one["step"]}, since step {one["since"]}: "{one["what"]}"'
        for one in run.alarms
    ]
    return "; ".join(said) + "." if said else "no alarm sounded."


def held_out(healthy: Recorded, collapsed: Recorded) -> str:
    """The evaluations before and after training, of both runs."""
    keys = [key for key in HELD_OUT if key in healthy.after]
    rows = [
        [
            f"`{label(key)}`",
            bare(healthy.before, key),
            format_metric(key, healthy.after),
            bare(collapsed.before, key),
            format_metric(key, collapsed.after),
        ]
        for key in keys
    ]
    head = ["", "healthy, before", "after", "collapsed, before", "after"]
    number = healthy.after["em"]["n"]
    return f"{as_table(head, rows)}\n\n({number} held-out tasks, greedy, with 95 % intervals.)"


def steps(healthy: Recorded, collapsed: Recorded) -> str:
    """Both runs step by step."""
    both = [run.of_phase("train") for run in (healthy, collapsed)]
    shown = [*(step for step in AT if step < healthy.max_steps), healthy.max_steps]
    head = [
        "step",
        *(f"{name}: `{label(key)}`" for name in ("healthy", "collapsed") for key in CURVES),
    ]
    rows = [
        [str(step), *(bare(train[step], key) for train in both for key in CURVES)] for step in shown
    ]
    return as_table(head, rows)


def patterns(healthy: Recorded, collapsed: Recorded) -> str:
    """What became of the rollouts of the first and the last step, by outcome pattern."""
    columns = {
        "both, step 1": _patterns(healthy, 1),
        **{
            f"{name}, step {run.max_steps}": _patterns(run, run.max_steps)
            for name, run in (("healthy", healthy), ("collapsed", collapsed))
        },
    }
    together: Counter[str] = sum(columns.values(), Counter())
    rows = [
        [name, *(str(column[name] or "") for column in columns.values())]
        for name, _ in together.most_common()
    ]
    return as_table(["outcome pattern", *columns], rows)


def _patterns(run: Recorded, step: int) -> Counter[str]:
    return Counter(find_pattern(row) for row in _train(run, step))


def group(healthy: Recorded, collapsed: Recorded) -> str:
    """One group of step 1, as each of the two rewards sees it."""
    ours, theirs = (_by_name(run) for run in (healthy, collapsed))
    same = sum(row["ids"] == theirs[name]["ids"] for name, row in ours.items())
    rows = [
        [
            str(place),
            find_pattern(row),
            *(cell for one in (row, theirs[name]) for cell in _earned(one)),
        ]
        for place, (name, row) in enumerate(
            ((name, row) for name, row in ours.items() if row["group_id"] == GROUP), 1
        )
    ]
    head = ["rollout", "outcome pattern"]
    head += [f"{name}: {word}" for name in ("healthy", "collapsed") for word in _WORDS]
    number = f"the {same}" if same == len(ours) else f"{same} of the {len(ours)}"
    text = as_prose(
        f"Both runs begin with the same model and the same seed, so {number} rollouts of step 1 "
        "are the same, token by token. Only what they earned differs:"
    )
    return f"{text}\n\n{as_table(head, rows)}"


_WORDS = ("reward", "advantage")


def _earned(row: Mapping[str, Any]) -> tuple[str, str]:
    return f"{row['reward']:g}", f"{row['advantage']:+.2f}"


def price(healthy: Recorded, collapsed: Recorded) -> str:
    """What a search was worth and what it cost at step 1: means over the rollouts, by searching."""
    lines = []
    for name, run in (("healthy", healthy), ("collapsed", collapsed)):
        searched, guessed = (
            [row["reward"] for row in _train(run, 1) if row["scores"]["searched"] == value]
            for value in (1, 0)
        )
        lines.append(
            f"in the {name} run the {len(searched)} rollouts that searched earned "
            f"{sum(searched) / len(searched):.2f} on average, the {len(guessed)} that did not "
            f"{sum(guessed) / len(guessed):.2f}"
        )
    return as_prose(f"Of all rollouts of step 1: {'; '.join(lines)}.")


def decision(healthy: Recorded, collapsed: Recorded) -> str:
    """The token at which the rollout that is shown was least sure."""
    row = _by_name(collapsed)[RIGHT]
    own = [place for place, author in enumerate(row["authors"]) if author == "M"]
    place = max(own, key=lambda one: row["entropy"][one])
    texts = open_texts(Run.open(collapsed.folder))
    texts.read(row["ids"])
    line = "".join(texts.table[row["ids"][one]] for one in own[: own.index(place) + 8])
    return as_prose(
        f"The model was least sure of one token, `{texts.table[row['ids'][place]].strip()}` in "
        f"`{line.splitlines()[0]}`: it gave it {math.exp(row['sampler_logp'][place]):.0%}, at an "
        f"entropy of {row['entropy'][place]:.2f} nats."
    )


def forced(healthy: Recorded, collapsed: Recorded) -> str:
    """What the collapsed policy still can do."""
    return as_prose(
        f"After the collapse `em` is {bare(collapsed.after, 'em')}. With the first turn forced to "
        f"search it is {bare(collapsed.after, 'em_forced')} (before training "
        f"{bare(collapsed.before, 'em_forced')})."
    )


def _train(run: Recorded, step: int | None = None) -> Iterator[dict[str, Any]]:
    """The training rollouts that are kept, or those of a step."""
    for row in run.rollouts:
        if row["phase"] == "train" and step in (None, row["step"]):
            yield row


def _by_name(run: Recorded) -> dict[str, dict[str, Any]]:
    return {row["rollout_id"]: row for row in _train(run, 1)}


BLOCKS: Mapping[str, Callable[[Recorded, Recorded], str]] = {
    "commands": commands,
    "kept": kept,
    "alarms": alarms,
    "held_out_both": held_out,
    "steps_both": steps,
    "patterns": patterns,
    "group": group,
    "price": price,
    "decision": decision,
    "forced": forced,
    "controls": lambda healthy, _: controls(healthy),
    "scores": lambda healthy, _: scores(healthy),
}
"""Name of a block -> what writes it."""


def render(healthy: Recorded, collapsed: Recorded) -> dict[Path, str]:
    """The page as the two runs make it."""
    text = PAGE.read_text("utf-8")
    return {PAGE: fill(text, lambda name: BLOCKS[name](healthy, collapsed))}
