"""Reads docs/recorded_run/ and docs/collapsed_run/: what is kept of two finished runs.

Owns what lies in these folders and nothing else: `record_run.py` fills them; `recorded_pages.py`
and `two_runs.py` turn them into text and pictures. The collapsed run has no scripted policies and
controls.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from searchrl import Run
from searchrl.contracts import Metric

DOCS = Path(__file__).resolve().parent
RECORD = DOCS / "recorded_run"
COLLAPSED = DOCS / "collapsed_run"


@dataclass(frozen=True)
class Recorded:
    """The files of one of the folders, read once. Each figure in the pages is one of theirs."""

    folder: Path = RECORD

    def _json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text("utf-8"))

    def _rows(self, name: str) -> list[dict[str, Any]]:
        lines = (self.folder / name).read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json` of the run."""
        return dict(self._json("summary.json"))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """`metrics.jsonl`: `{"step", "phase", "metrics"}`, oldest first."""
        return self._rows("metrics.jsonl")

    @cached_property
    def config(self) -> dict[str, Any]:
        """`config.yaml`, as plain values."""
        return dict(yaml.safe_load((self.folder / "config.yaml").read_text("utf-8")))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """`provenance.json`: versions and the time it began."""
        return dict(self._json("provenance.json"))

    @cached_property
    def record(self) -> dict[str, Any]:
        """`record.json`: machine, seconds, the hash of the weights, what is still wrong."""
        return dict(self._json("record.json"))

    @cached_property
    def heuristics(self) -> dict[str, Any]:
        """`heuristics.json`: scripted policies on the same tasks, by name."""
        return dict(self._json("heuristics.json"))

    @cached_property
    def controls(self) -> dict[str, Any]:
        """`controls.json`: the trained policy with other retrievers, and other runs."""
        return dict(self._json("controls.json"))

    @cached_property
    def alarms(self) -> list[dict[str, Any]]:
        """`alarms.jsonl`: what alarms said, oldest first."""
        return Run.open(self.folder).alarms

    @cached_property
    def rollouts(self) -> list[dict[str, Any]]:
        """The rollouts that are kept, oldest first."""
        return list(Run.open(self.folder).rollouts())

    @cached_property
    def episodes(self) -> list[dict[str, Any]]:
        """`episodes.jsonl`: one task before and after, and an answer that is still wrong."""
        return self._rows("episodes.jsonl")

    def of_phase(self, phase: str) -> dict[int, dict[str, Metric]]:
        """The metrics of a phase by step."""
        return {row["step"]: row["metrics"] for row in self.rows if row["phase"] == phase}

    @property
    def max_steps(self) -> int:
        """Steps of the run."""
        return int(self.summary["steps"])

    @property
    def between(self) -> dict[int, dict[str, Metric]]:
        """The short evaluations but that after the last step, which the one after stands for."""
        return {s: m for s, m in self.of_phase("during").items() if s < self.max_steps}

    @property
    def before(self) -> dict[str, Metric]:
        """The evaluation before training."""
        return self.of_phase("before")[0]

    @property
    def after(self) -> dict[str, Metric]:
        """The evaluation after the last step."""
        return self.of_phase("after")[self.max_steps]
