"""The report of a run in a terminal: `searchrl inspect --text`.

Owns the layout. What is shown is read by `searchrl.report`, as it is for the page. No torch.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from searchrl.cli.screen.figures import format_metric, label, sparkline
from searchrl.cli.terminal import make_console
from searchrl.errors import RunFolderError, suggest
from searchrl.report.index import mean_advantage
from searchrl.report.overview import describe_run
from searchrl.report.patterns import find_pattern, name_choices
from searchrl.report.tokens import TokenTexts, open_texts
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
    before, after = facts["before"] or {}, facts["after"] or {}
    figures = _table("metric", "before", "after", "curve of training")
    curves = facts["curves"]
    for name in dict.fromkeys((*before, *after, *facts["components"])):
        if name not in before and name not in after and name not in curves:
            continue
        curve = [float(point[1]) for point in curves.get(name, {}).get("train", [])]
        figures.add_row(
            label(name),
            format_metric(name, before),
            format_metric(name, after),
            sparkline(curve, _CURVE_WIDTH),
        )
    console.print(figures)
    _show_patterns(run)


def _show_patterns(run: Run) -> None:
    console = make_console(sys.stdout)
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in run.rollouts():
        kept = {name: row[name] for name in ("phase", "step", "rollout_id", "reward")}
        found[find_pattern(row)].append(kept)
    total = sum(map(len, found.values()))
    table = _table(
        "outcome pattern",
        Column("rollouts", justify="right"),
        "share",
        "mean reward",
        "one of them",
    )
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    for pattern, rows in ordered[:_PATTERNS]:
        rewards = [row["reward"] for row in rows if row["reward"] is not None]
        mean = f"{sum(rewards) / len(rewards):.2f}" if rewards else "—"
        share = f"{len(rows) / total:.1%}"
        table.add_row(pattern, f"{len(rows):,}", share, mean, name_rollout(rows[-1]))
    console.print(table)
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
    if row.get("choices"):
        _show_choices(row)
        return
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
    console.print(_token_text(row, texts))


def _show_choices(row: Mapping[str, Any]) -> None:
    """Print the legal actions before every choice and how probable each was; bold: taken."""
    console = make_console(sys.stdout)
    taken = name_choices(row)
    for number, (name, choice) in enumerate(zip(taken, row["choices"], strict=True), 1):
        line = Text(f"choice {number}: ")
        for place, (action, p) in enumerate(choice["probs"].items()):
            said = f"{action} {'not recorded' if p is None else format(p, '.3g')}"
            line.append("  " * bool(place))
            line.append(said, "bold" if action == name else "dim")
        console.print(line)
        if shown := row["turns"][number - 1]["passages"]:
            console.print(f"  → {', '.join(shown)}", style="dim")


def _token_text(row: Mapping[str, Any], texts: TokenTexts) -> Text:
    own, text = texts.read(row["ids"]), Text()
    ratios = row.get("ratio") or [None] * len(row["ids"])
    columns = zip(row["ids"], row["authors"], ratios, strict=True)
    for place, (token, author, ratio) in enumerate(columns):
        style = f"{_AUTHORS[author]}{' underline' if ratio is not None else ''}"
        text.append(own.get(place, texts.table[token]), style)
    return text


def _table(*columns: Column | str) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
