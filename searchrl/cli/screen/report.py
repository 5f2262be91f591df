"""The report of a run in a terminal: `searchrl inspect --text`.

Owns the layout. What is shown is read by `searchrl.report`, as it is for the page. No torch.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from statistics import fmean

from rich.text import Text

from searchrl.cli.screen.figures import format_metric, make_table, sparkline
from searchrl.cli.terminal import make_console
from searchrl.errors import RunFolderError, suggest
from searchrl.report.index import mean_advantage
from searchrl.report.overview import describe_run
from searchrl.report.patterns import find_pattern
from searchrl.report.tokens import open_texts
from searchrl.run_folder import Run
from searchrl.run_folder.rollouts import name_rollout

_CURVE_WIDTH = 40
_PATTERNS = 30
"""Outcome patterns that are listed, the most common ones."""

_AUTHORS = {"P": "dim", "M": "bold", "E": "italic"}


def show_run(run: Run) -> None:
    """Print figures before and after, curves, alarms and outcome patterns."""
    console, facts = make_console(sys.stdout), describe_run(run)
    console.print(str(run.path), style="bold")
    console.print(" · ".join(f"{name} {value}" for name, value in facts["settings"]))
    for fault in facts["faults"]:
        console.print(f"note: {fault}")
    for alarm in facts["alarms"]:
        console.print(f"alarm {alarm['alarm']} ({alarm['severity']}), step {alarm['step']}:")
        console.print(f"  {alarm['what']} Try: {'; '.join(alarm['tries'])}")
    if not facts["alarms"]:
        console.print("no alarm sounded")
    before, after, curves = facts["before"] or {}, facts["after"] or {}, facts["curves"]

    def curve(key: str) -> str:
        points = curves.get(key, {}).get("train", [])
        return sparkline([float(point[1]) for point in points], _CURVE_WIDTH)

    keys = dict.fromkeys((*before, *after, *(key for key in facts["components"] if key in curves)))
    figures = {k: [format_metric(k, before), format_metric(k, after), curve(k)] for k in keys}
    console.print(make_table("metric", ["before", "after", "curve of training"], figures))
    rewards: dict[str, list[float | None]] = defaultdict(list)
    names: dict[str, str] = {}
    for row in run.rollouts():
        pattern = find_pattern(row)
        rewards[pattern].append(row["reward"])
        names[pattern] = name_rollout(row)
    total, patterns = sum(map(len, rewards.values())), {}
    ordered = sorted(rewards, key=lambda pattern: -len(rewards[pattern]))
    for pattern in ordered[:_PATTERNS]:
        every = rewards[pattern]
        known = [reward for reward in every if reward is not None]
        mean = f"{fmean(known):.2f}" if known else "—"
        share = f"{len(every) / total:.1%}"
        patterns[pattern] = [f"{len(every):,}", share, mean, names[pattern]]
    columns = ["rollouts", "share", "mean reward", "one of them"]
    console.print(make_table("outcome pattern", columns, patterns))
    if len(ordered) > _PATTERNS:
        console.print(f"and {len(ordered) - _PATTERNS} rarer patterns", style="dim")
    console.print("one rollout: searchrl inspect RUN --text --rollout NAME", style="dim")


def show_rollout(run: Run, name: str) -> None:
    """Print one rollout: why it earned what it did, its searches, its tokens by author.

    Raises:
        RunFolderError: if there is no rollout of this name.
    """
    console, names = make_console(sys.stdout), []
    for row in run.rollouts():
        names.append(name_rollout(row))
        if names[-1] == name:
            break
    else:
        raise RunFolderError(f"run '{run.path}' has no rollout '{name}'.{suggest(name, names)}")
    console.print(row["task"]["question"], style="bold")
    scores = ", ".join(f"{key} {value:g}" for key, value in row["scores"].items())
    advantage = mean_advantage(row["advantage"])
    console.print(
        f"{find_pattern(row)} · reward {row['reward']} ({scores}) · advantage "
        f"{'none: not trained on' if advantage is None else f'{advantage:+.3g}'}"
    )
    console.print(f"answer {row['final_answer']!r}, accepted {row['task']['answers']}")
    for number, turn in enumerate(row["turns"], 1):
        gold = set(row["task"]["gold_ids"])
        shown = ", ".join(f"{one} (gold)" if one in gold else one for one in turn["passages"])
        queries = " · ".join(turn["queries"])
        console.print(f"turn {number}: {turn['action']} {queries}{f' → {shown}' if shown else ''}")
    console.print("\nprompt dim, model bold, environment italic; underlined: trained", style="dim")
    texts = open_texts(run)
    for fault in texts.faults:
        console.print(f"note: {fault}")
    own, text = texts.read(row["ids"]), Text()
    ratios = row.get("ratio") or [None] * len(row["ids"])
    for place, (token, author, ratio) in enumerate(
        zip(row["ids"], row["authors"], ratios, strict=True)
    ):
        style = f"{_AUTHORS[author]}{' underline' if ratio is not None else ''}"
        text.append(own.get(place, texts.table[token]), style)
    console.print(text)
