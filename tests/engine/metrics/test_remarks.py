"""Signals of an environment: metrics on request, a sentence where nobody reports them."""

from __future__ import annotations

from searchrl.config import build_config
from searchrl.engine.metrics.remarks import find_remarks
from searchrl.engine.rollout.records import rollout_record
from searchrl.programs.evaluate import evaluate

ASKED = {"policy": "scripted", "eval": {"num_tasks": 12, "forced": False}}
SHOWN = "signal:gold_shown"


def test_a_signal_is_a_metric_where_the_task_asks_for_it() -> None:
    task = {"env": "regulations", "metrics": ["em", SHOWN]}
    result = evaluate(build_config(ASKED, {"tasks": [task]}))
    having = [r for r in result.rollouts if "gold_shown" in r.episode.signals]
    assert 0 < len(having) <= 12
    assert result.metrics[SHOWN]["n"] == len(having)
    assert result.metrics[SHOWN]["value"] == 1.0  # the expert finds everything
    # It is no part of the reward, and its absence unscores nothing.
    assert all(r.is_scored for r in result.rollouts)
    assert not find_remarks(result.rollouts)


def test_without_being_asked_for_it_is_in_the_record_alone() -> None:
    result = evaluate(build_config(ASKED))
    assert not [name for name in result.metrics if "gold_shown" in name]
    rows = [rollout_record(r, "eval", None) for r in result.rollouts]
    assert {"gold_shown": 1.0} in [row["signals"] for row in rows]


def test_a_misspelt_signal_is_said_with_the_near_match() -> None:
    task = {"env": "regulations", "metrics": ["em", "signal:gold_shwn"]}
    result = evaluate(build_config(ASKED, {"tasks": [task]}))
    (said,) = find_remarks(result.rollouts)
    assert said.startswith("metric signal:gold_shwn: no episode of env 'regulations' (plugin ")
    assert said.endswith("Did you mean 'gold_shown'?")
