"""The whole table: kinds, slices and difficulties, pass@k, and what two policies are paired by."""

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_metrics import rollout

from searchrl.config import build_config
from searchrl.engine.metrics.breakdown import (
    COMPONENTS,
    group_tasks,
    measure,
    pass_at_k,
    pass_chance,
    task_means,
    with_components,
)
from searchrl.engine.metrics.remarks import find_remarks
from searchrl.plugins import load_plugins
from searchrl.programs.evaluate import evaluate, play_table
from searchrl.statistics import proportion


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(drawn: tuple[int, int], data: Any):
    n, num_right = drawn
    k = data.draw(st.integers(1, n))
    samples = [1] * num_right + [0] * (n - num_right)
    draws = list(itertools.combinations(samples, k))
    assert pass_chance(n, num_right, k) == pytest.approx(sum(map(max, draws)) / len(draws))


def play(**settings: Any) -> Any:
    config = build_config(
        {"policy": "scripted:two_search_regex", "eval": {"num_tasks": 40}, **settings}
    )
    return play_table(config, load_plugins(config.plugins), lambda name, done, total: None)


def test_every_figure_stands_for_every_kind_and_difficulty() -> None:
    result = play()
    metrics = result.metrics
    assert set(COMPONENTS) <= set(metrics)
    of_kind = [r for r in result.rollouts if r.episode.task.kind == "lookup"]
    mean = sum(r.scored.scores["f1"] for r in of_kind) / len(of_kind)
    assert metrics["f1/lookup"]["value"] == pytest.approx(mean)
    assert metrics["f1/lookup"]["n"] == len(of_kind)
    assert metrics["passive/difficulty.normal"]["value"] == metrics["passive"]["value"]


def test_each_task_has_a_table_of_its_own_and_only_what_is_scored_is_in_a_group() -> None:
    first, second = rollout(1.0).world, rollout(1.0).world
    second.name = "other"
    played = [
        rollout(em, world=world, group_id=f"{world.name}/{number // 2}", kind="k")
        for world, ems in ((first, (1.0, 0.5, 0.0, 0.5)), (second, (0.5, 0.0, 1.0, 1.0)))
        for number, em in enumerate(ems)
    ]
    failed = rollout(None, world=first, kind="gone", slices=("lost",))
    metrics = measure([*played, failed], [first, second])
    # Half right is not right; the samples of a task are alike.
    names = ("pass@2", "toy/pass@2", "other/pass@2", "pass@2/k", "toy/pass@2/k", "avg@2/k")
    assert [metrics[name]["value"] for name in names] == [0.5, 0.5, 0.5, 0.5, 0.5, 0.5625]
    assert [metrics[f"{name}em/k"]["value"] for name in ("toy/", "other/")] == [0.5, 0.625]
    assert [*group_tasks([*played, failed])] == ["k"], "no task names a difficulty"
    alike = [rollout(float(n < 8), group_id=n // 4) for n in range(16)]
    assert pass_at_k(alike)["avg@4"]["high"] > proportion(8, 16)["high"] + 0.05
    means = task_means(played)
    assert means["em"]["toy/0"] == 0.75 and "passive" not in means, "there is nothing to search"


def test_exact_match_is_found_by_its_whole_name_where_a_plugin_took_it_as_well() -> None:
    rival = Path(__file__).parents[2] / "fixtures" / "plugins" / "rival_em.py"
    config = with_components(build_config({"tasks": [{"metrics": []}]}), load_plugins([str(rival)]))
    assert config.tasks[0].metrics[:2] == ["searchrl:em", "cover_em"]
    twice = [rollout(1.0, scores={"searchrl:em": 1.0}, group_id="g") for _ in range(2)]
    assert pass_at_k(twice)["pass@2"]["value"] == 1.0


def test_several_samples_are_those_of_one_task() -> None:
    result = play(eval={"num_tasks": 10, "num_samples": 3})
    assert len(result.rollouts) == 30
    assert len({r.trajectory.rollout_id for r in result.rollouts}) == 30
    once = play(eval={"num_tasks": 10}).metrics
    assert result.metrics["pass@3"]["value"] == pytest.approx(once["em"]["value"])
    assert result.metrics["avg@3"]["value"] == pytest.approx(once["em"]["value"])
    assert result.metrics["pass@3"]["n"] == 10 and result.metrics["avg@3"]["n"] == 30
    # Samples of a task are alike, so thirty of them say no more than ten.
    assert result.metrics["em"]["low"] < once["em"]["low"] + 1e-9
    assert not pass_at_k(play(eval={"num_tasks": 4}).rollouts)
    means = task_means(result.rollouts)
    assert len(means["em"]) == 10 and set(means["passive"].values()) == {0.0}
    first = result.rollouts[0]
    unscored = replace(first, scored=replace(first.scored, reward=None))
    alone = task_means([unscored, *result.rollouts[3:]])
    assert set(alone["em"]) == set(means["em"]) - {first.trajectory.group_id}


def test_a_task_with_fewer_samples_counts_as_far_as_they_go() -> None:
    """One of its samples failed: it still says how often one of two is right."""
    rollouts = list(play(eval={"num_tasks": 6, "num_samples": 4}).rollouts)
    by_task: dict[str, list[Any]] = {}
    for one in rollouts:
        by_task.setdefault(one.trajectory.group_id, []).append(one)
    first = next(iter(by_task.values()))
    found = pass_at_k([r for r in rollouts if r is not first[-1]])
    assert [found[f"pass@{k}"]["n"] for k in (2, 4)] == [6, 5] and found["avg@4"]["n"] == 23
    fewer = [r for samples in by_task.values() for r in samples[:3]]
    assert set(pass_at_k(fewer)) == {"pass@2", "pass@3", "avg@3"}


ASKED = {"policy": "scripted", "eval": {"num_tasks": 12, "forced": False}}
SHOWN = "signal:gold_shown"


def test_a_sample_that_is_not_scored_is_none() -> None:
    """Another component could not score: its exact match is known, and does not count."""
    first, *others = play(eval={"num_tasks": 6, "num_samples": 4}).rollouts
    unscored = replace(first, scored=replace(first.scored, reward=None))
    assert pass_at_k([unscored, *others]) == pass_at_k(others) != pass_at_k([first, *others])


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


def test_a_misspelt_signal_is_said_with_the_near_match() -> None:
    task = {"env": "regulations", "metrics": ["em", "signal:gold_shwn"]}
    result = evaluate(build_config(ASKED, {"tasks": [task]}))
    (said,) = find_remarks(result.rollouts)
    assert said.startswith("metric signal:gold_shwn: no episode of env 'regulations' (plugin ")
    assert said.endswith("Did you mean 'gold_shown'?")
    # What another environment of the run reports is no signal of this one.
    here, there = rollout(1.0), rollout(1.0)
    for one, name, metrics, signals in ((here, "a", ["signal:x"], {}), (there, "b", [], {"x": 1})):
        one.world.name, one.world.notes = name, [f"of {name}"]
        one.world.who = {"env": f"env '{name}' (p)"}
        one.world.config = SimpleNamespace(metrics=metrics)
        one.episode.signals = signals
    first, silent, second = find_remarks([here, there])
    assert (first, second) == ("env 'a': of a", "env 'b': of b")
    assert silent.startswith("metric signal:x: no episode of env 'a' (p) has a signal 'x'")
