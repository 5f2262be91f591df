"""Facts and figures of a model card, and weights by when they were measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from searchrl.config import build_config
from searchrl.runs.card import Exported, _cell, _facts
from searchrl.runs.source import Source

ROWS = [("train", 4, 1), ("during", 2, 2), ("during", 4, 3), ("train", 2, 4)]


def source(step: int | None = None, **provenance: Any) -> Source:
    run: Any = SimpleNamespace(
        config=build_config({"rollout": {"prompts_per_step": 3, "group_size": 5}}),
        provenance=provenance,
        summary={"steps": 9, "after": {"em": 2}, "before": {"em": 1}, "eval": {"em": 3}},
        metric_rows=lambda: [{"phase": p, "step": s, "metrics": m} for p, s, m in ROWS],
    )
    return Source(run, Path("policy"), step)


def test_facts_are_those_of_the_weights() -> None:
    times = {None: "1 min", 91: "2 min", 3600: "1 h 0 min", 7500: "2 h 5 min"}
    assert times == {s: _facts(source(duration_s=s))["duration"] for s in times}
    origins = {"core": "builtin", "mine": "file"}
    plugins = [{"plugin": n, "version": "2", "origin": of} for n, of in origins.items()]
    facts = _facts(source(plugins=plugins, machine={"gpu": None, "cpu": "a cpu"}))
    assert (facts["plugins"], facts["hardware"]) == ("mine 2", "a cpu")
    assert (facts["steps"], facts["rollouts per step"]) == ("9", "3 × 5")
    assert _facts(source(0))["steps"] == "0"  # a checkpoint before the first step


def test_figures_are_those_of_the_run_or_of_the_checkpoint() -> None:
    assert list(source().figures.items()) == [("before", {"em": 1}), ("after", {"em": 2})]
    assert (source(4).figures, source(3).figures) == ({"during": 3}, {})
    assert _cell({"value": 0.5, "low": 0.25, "high": 0.75}) == "0.500 [0.250, 0.750]"
    assert _cell({"value": 0.5, "low": 0.5, "high": 0.5}) == _cell({"value": 0.5}) == "0.500"
    bases = [("adapter", "Qwen/Q"), ("adapter", "mine"), ("adapter", None), ("whole", None)]
    found = [Exported(Path("x"), kind, base).is_complete for kind, base in bases]  # type: ignore
    assert found == [True, False, False, True]
