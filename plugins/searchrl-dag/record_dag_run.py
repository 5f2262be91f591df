"""Makes one finished run the recorded one, from which the figures in README.md come.

    searchrl train --env multisource --protocol dag \\
        --reward "0.5*dag_judge+0.25*dag+0.25*format" --model tiny --run-dir runs/dag
    python plugins/searchrl-dag/record_dag_run.py runs/dag

keeps what is small of the run in recorded_run/, plays the scripted policies on the same tasks and
writes the block in README.md anew. Without a run it only writes that. Owns what is measured and how
it is shown; what is kept of a run is decided in docs/keep_run.py.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import searchrl
from searchrl import Run

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "docs"))

from keep_run import keep_run  # noqa: E402

RECORD, README = HERE / "recorded_run", HERE / "README.md"
RUN_DIR = "runs/dag"
"""What README.md calls the run."""
SHOWN = {
    "em": "exact match",
    "dag": "valid plans",
    "format": "format",
    "dag_judge": "`dag_judge`",
    "em/lookup": "exact match, `lookup`",
    "em/pair": "exact match, `pair`",
    "em/chain": "exact match, `chain`",
    "em/fan": "exact match, `fan`",
    "em/seen_wording": "exact match, wordings of training",
    "em/unseen_wording": "exact match, unseen wordings",
}
HEURISTICS = ("one_general", "two_nodes", "every_source", "general_plan")
"""Scripted policies that know the question and what they were shown, as a model does."""
_BLOCK = re.compile(r"(?<=<!-- recorded -->\n).*?(?=<!-- end -->)", re.DOTALL)


def main(words: Sequence[str] | None = None) -> None:
    """Record a run if one is named, then write the block in README.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", nargs="?", type=Path, help="a finished run of the command above")
    given = parser.parse_args(words)
    if given.run is not None:
        record(Run.open(given.run))
    README.write_text(_BLOCK.sub(lambda _: render(RECORD), README.read_text("utf-8")), "utf-8")


def record(run: Run) -> None:
    """Fill recorded_run/ from a run, and measure what it is compared with.

    Raises:
        SystemExit: if the run has not finished, or has no trajectories.
    """
    keep_run(run, RECORD, RUN_DIR)
    compared = {
        "scripts": dict(play_scripts(run)),
        "without_parents": dict(play_without_parents(run)),
    }
    text = json.dumps(compared, indent=2, ensure_ascii=False)
    (RECORD / "compared.json").write_text(f"{text}\n", "utf-8")


def play_scripts(run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """Exact match of each heuristic on the test tasks of the run."""
    for script in HEURISTICS:
        result = searchrl.evaluate(run.config.to_dict() | {"policy": f"scripted:{script}"})
        yield script, result.metrics["em"]


def play_without_parents(run: Run) -> Iterator[tuple[str, dict[str, Any]]]:
    """Exact match of the trained policy on chains, with and without the results of parents."""
    for name, has_results in (("with", True), ("without", False)):
        env = {"name": "multisource", "mix": {"chain": 1.0}, "parent_results": has_results}
        config = run.config.to_dict()
        task = config["tasks"][0] | {"env": env}
        result = searchrl.evaluate(config | {"tasks": [task], "model": str(run.path)})
        yield name, result.metrics["em"]


def render(folder: Path) -> str:
    """The block of README.md that shows a recorded run."""
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    compared = json.loads((folder / "compared.json").read_text("utf-8"))
    before, after, number = summary["before"], summary["after"], summary["after"]["em"]["n"]
    provenance = json.loads((folder / "provenance.json").read_text("utf-8"))
    minutes, seconds = divmod(round(provenance["duration_s"]), 60)
    rows = [
        f"| {words} | {_figure(before[name])} | {_figure(after[name])} |"
        for name, words in SHOWN.items()
        if name in after
    ]
    scripts = compared["scripts"]
    best = max(scripts, key=lambda name: float(scripts[name]["value"]))
    parents = compared["without_parents"]
    lines = [
        f"{summary['steps']} steps, {minutes} min {seconds} s on two cores without a GPU. Greedy,",
        f"on {number} test tasks about names that training never shows, with 95 % intervals:",
        "",
        "| | before | after |",
        "|---|---|---|",
        *rows,
        "",
        f"The best heuristic, `{best}`, reaches an exact match of {_figure(scripts[best])}.",
        "Exact match of the trained policy on chains alone, where the second query needs the",
        f"result of the first: {_figure(parents['with'])}, and {_figure(parents['without'])} with",
        "`env.parent_results=false`.",
    ]
    return "\n".join(lines) + "\n"


def _figure(metric: Mapping[str, float]) -> str:
    return f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]"


if __name__ == "__main__":
    main()
