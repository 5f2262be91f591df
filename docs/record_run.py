"""Makes one finished run the recorded one, from which all figures of the front pages come.

    searchrl train --env regulations --reward format+em --run-dir runs/first
    python docs/record_run.py runs/first --other runs/seed_10 --other runs/format
    python docs/record_run.py runs/collapsed --collapsed

copies what is small of the run to docs/recorded_run/ (`keep_run.py`); plays the scripted policies
and the controls on the same test tasks; then writes the blocks of the pages and the pictures anew.
Without a run it only writes pages and pictures. `--other` adds runs that differ from the recorded
one in a seed, a reward, a learning rate or a control, to those that are there. `--collapsed` makes
the run the collapsed one of read-a-run.md, in docs/collapsed_run/. Owns what is measured;
`recorded_pages.py` and `two_runs.py` own how it is shown.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import two_runs
from keep_run import keep_run, without_paths
from recorded import COLLAPSED, DOCS, RECORD, Recorded
from recorded_pages import RUN_DIR, render

import searchrl
from searchrl import Run, load_plugins
from searchrl.contracts import Metric
from searchrl.engine.metrics.evaluation import EvalResult, summary_metrics
from searchrl.engine.model.loading import TINY_PATH
from searchrl.envs.regulations.questions import NOT_REGULATED, NOT_REGULATED_ANSWER
from searchrl.programs.agent import run_settings
from searchrl.screen.console import choose_pair
from searchrl.statistics import mean, proportion

POLICIES = ("expert", "two_search_regex")
"""Scripted policies whose EM is drawn; those that the environment does not offer are left out."""
EPISODE_KEYS = (
    "rollout_id", "phase", "step", "task", "turns", "final_answer", "stop_reason", "reward",
    "scores", "unscored",
)  # fmt: skip
"""What is kept of a row of `rollouts/`: what a person reads, no tokens."""
RETRIEVERS = ("random", "empty")
WEIGHTS = TINY_PATH / "model.safetensors"
CONFIG = "docs/recorded_run/config.yaml"
COLLAPSED_DIR = "runs/collapsed"
"""What the pages call the run that collapsed."""

_NOT_COMPARED = ("run_dir", "log", "checkpoint", "num_threads")
"""Settings that change no figure."""
_VARIED = ("seed", "tasks.0.reward", "optim.lr", "algorithm.control")
"""Settings that controls vary, see `varied`."""


def main(words: Sequence[str] | None = None) -> None:
    """Record a run if one is named, then write pages and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", nargs="?", type=Path, help="a finished run of the main command")
    parser.add_argument("--other", action="append", default=[], type=Path, help="a further run")
    cores = f"{os.cpu_count()} CPU cores"
    parser.add_argument("--machine", default=cores, help=f"where it ran; default: '{cores}'")
    parser.add_argument("--seconds", type=float, help="what the whole command took by the clock")
    parser.add_argument("--collapsed", action="store_true", help="it is the one that collapsed")
    given = parser.parse_args(words)
    if given.run is not None:
        make = record_collapsed if given.collapsed else record
        make(Run.open(given.run), given.machine, given.seconds)
    if given.other:
        add_others([Run.open(path) for path in given.other])
    pages = render(Recorded()) | two_runs.render(Recorded(), Recorded(COLLAPSED))
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")


def record(run: Run, machine: str, seconds: float | None = None) -> None:
    """Fill docs/recorded_run/ from a run, and measure what it is compared with.

    Without `seconds` the time is that between the first and the last file that the run wrote.

    Raises:
        SystemExit: if the run has not finished, or has no trajectories.
    """
    others = others_so_far()
    keep_run(run, RECORD, RUN_DIR)
    before, after = (list(run.rollouts(phase)) for phase in ("before", "after"))
    write_rows("episodes.jsonl", choose_episodes(before, after))
    facts = describe(run, machine, seconds) | describe_answers(after)
    facts["search_first"] = describe_forced(run)
    write_json("record.json", facts)
    right = {row["task"]["id"]: row["scores"]["em"] for row in after}
    write_json("heuristics.json", {name: one for name, one in play_policies(run, right)})
    write_json("controls.json", {"retrievers": play_retrievers(run, after), "runs": others})


def others_so_far() -> list[dict[str, Any]]:
    """The runs beside the one that was recorded until now, if they trained the weights of today."""
    if not (RECORD / "controls.json").is_file():
        return []
    older = Recorded(RECORD)
    is_same = older.record["weights_sha256"] == hash_weights()
    return list(older.controls["runs"]) if is_same else []


def record_collapsed(run: Run, machine: str, seconds: float | None = None) -> None:
    """Fill docs/collapsed_run/ from a run that differs from the recorded one in its reward alone.

    Raises:
        SystemExit: if it differs in something else, has not finished, or has no trajectories.
    """
    flags, apart = flags_apart(Recorded(RECORD).config, run)
    if [*flags] != ["--reward"] or apart:
        raise SystemExit(
            f"'{run.path}' must differ from the recorded run in --reward and nothing else; it "
            f"differs in {', '.join((*flags, *apart)) or 'nothing'}"
        )
    keep_run(run, COLLAPSED, COLLAPSED_DIR)
    write_json("record.json", describe(run, machine, seconds), COLLAPSED)


def write_json(name: str, value: Any, folder: Path | None = None) -> None:
    """Write one file of docs/recorded_run/, or of another folder."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    ((folder or RECORD) / name).write_text(text, encoding="utf-8")


def write_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one file of docs/recorded_run/ with a row on each line."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (RECORD / name).write_text(text, encoding="utf-8")


def seconds_of(run: Run) -> float:
    """Seconds from the first file of a run to its summary; loading the weights came before."""
    started = json.loads((run.path / "provenance.json").read_text("utf-8"))["started"]
    ended = (run.path / "summary.json").stat().st_mtime
    return ended - datetime.fromisoformat(started).timestamp()


def describe(run: Run, machine: str, seconds: float | None) -> dict[str, Any]:
    """What no other file says: its command, where and how long it ran, with which weights."""
    task = run.config.tasks[0]
    return {
        "command": f"searchrl train --env {task.env.name} --reward {shlex.quote(str(task.reward))}",
        "machine": machine,
        "wall_s": round(seconds or seconds_of(run)),
        "weights_sha256": hash_weights(),
    }


def hash_weights() -> str:
    """Which weights the embedded model has."""
    return hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()


def describe_answers(after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Which kinds and slices the test tasks have, and what is still wrong."""
    wrong = [row for row in after if row["scores"]["em"] < 1]
    silent = [
        row
        for row in wrong
        if row["task"]["kind"] != NOT_REGULATED
        and (row["final_answer"] or "").strip() == NOT_REGULATED_ANSWER
    ]
    return {
        "kinds": sorted({row["task"]["kind"] for row in after}),
        "slices": sorted({name for row in after for name in row["task"].get("slices", ())}),
        "wrong": {"count": len(wrong), "silent": len(silent)},
    }


def describe_forced(run: Run) -> dict[str, Metric]:
    """Exact match before training by kind of task, if the first turn has to search."""
    right: dict[str, list[float]] = {}
    for row in run.search_first():
        right.setdefault(row["task"]["kind"], []).append(row["scores"]["em"])
    return {kind: proportion(sum(ems), len(ems)) for kind, ems in sorted(right.items())}


def choose_episodes(
    before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The task that the command itself shows, before and after; then one that is still wrong."""
    pair = choose_pair(before, after)
    chosen = pair[1]["rollout_id"] if pair else ""
    rows = [row for row in (*before, *after) if row["rollout_id"] == chosen]
    rows += [row for row in after if row["scores"]["em"] < 1][:1]
    keys = (
        "rollout_id phase step task turns final_answer stop_reason reward scores unscored".split()
    )
    return [{key: row[key] for key in keys} for row in rows]


def play_policies(run: Run, right: Mapping[str, float]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The scripted policies on the run's test tasks, and how far the trained model is above each.

    `right` holds the exact match of the trained model by task; the gain is the mean of the
    differences on the same tasks, which lie between -1 and 1.
    """
    env = run.config.tasks[0].env.name
    offered = load_plugins(run.config.plugins).get("env", env).script_names
    for name in (name for name in POLICIES if name in offered):
        print(f"playing scripted:{name} …", flush=True)
        policy = f"scripted:{name}"
        result = searchrl.evaluate(run.config.to_dict() | {"run_dir": None, "policy": policy})
        gains = [right[r.episode.task.id] - r.scored.scores["em"] for r in result.rollouts]
        yield (
            name,
            {
                "command": f"searchrl eval --config {CONFIG} --policy {policy}",
                "metrics": summary_metrics(result.metrics),
                "gain": mean(gains, (-1.0, 1.0)),
            },
        )


def play_retrievers(run: Run, after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Exact match on questions that the handbook answers, by what the search engine returns."""
    seen = [(row["task"]["kind"], row["scores"]["em"]) for row in after]
    found: dict[str, Any] = {"bm25": {"regulated": regulated(seen)}}
    for name in RETRIEVERS:
        print(f"playing the trained model with {name} passages …", flush=True)
        settings = run_settings(run)
        for task in settings["tasks"]:
            task["retriever"] = {"name": name}
        settings["eval"]["forced"] = False
        result: EvalResult = searchrl.evaluate(settings)
        pairs = [(r.episode.task.kind, r.scored.scores["em"]) for r in result.rollouts]
        found[name] = {
            "command": f"searchrl eval {RUN_DIR} --retriever {name}",
            "regulated": regulated(pairs),
        }
    return found


def regulated(seen: Sequence[tuple[str, float]]) -> Metric:
    """The share of right answers to questions that the handbook answers."""
    right = [em for kind, em in seen if kind != NOT_REGULATED]
    return proportion(sum(right), len(right))


def add_others(runs: Sequence[Run]) -> None:
    """Add runs to controls.json, each named by the flags in which it differs.

    Raises:
        SystemExit: if a run differs in something that the main command's controls do not vary.
    """
    recorded = Recorded(RECORD)
    known = {one["flags"]: one for one in recorded.controls["runs"]}
    for run in runs:
        flags, apart = flags_apart(recorded.config, run)
        if not flags or apart or "after" not in run.summary:
            raise SystemExit(
                f"'{run.path}' is no control of the recorded run: it must have finished and differ "
                "in --seed, --reward, --lr or algorithm.control; it differs in "
                f"{apart or 'nothing'}"
            )
        name = " ".join(f"{flag} {value}" for flag, value in flags.items())
        known[name] = {
            "flags": name,
            **{label: summary_metrics(run.summary[label]) for label in ("before", "after")},
        }
    write_json("controls.json", recorded.controls | {"runs": list(known.values())})


def flags_apart(recorded: Mapping[str, Any], run: Run) -> tuple[dict[str, Any], list[str]]:
    """How a run differs from the recorded one: in what controls vary, by flag; in other keys."""
    config, usual = without_paths(run.config.to_dict(), run.path, RUN_DIR), varied(recorded)
    flags = {key: value for key, value in varied(config).items() if value != usual[key]}
    return flags, difference(recorded, config)


def varied(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that controls vary, by their flag."""
    return {
        "--seed": config["seed"],
        "--reward": config["tasks"][0]["reward"],
        "--lr": f"{config['optim']['lr']:g}",
        "--set": f"algorithm.control={config['algorithm'].get('control', 'none')}",
    }


def difference(one: Any, other: Any, at: str = "") -> list[str]:
    """Keys that two configurations set differently, but those that controls vary.

    Keys that only one of them has are not compared: another version may have added them.
    """
    if at in (*_NOT_COMPARED, *_VARIED):
        return []
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return [] if one == other else [at]
    both = [key for key in one if key in other]
    return [d for k in both for d in difference(one[k], other[k], f"{at}.{k}".lstrip("."))]


if __name__ == "__main__":
    main()
