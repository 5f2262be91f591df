"""Scoring stored rollouts again, by hand: groups, ranks, and what two rewards differ in."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.core.episode import Episode, FailureKind, Task
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.worlds import name_defaults
from searchrl.errors import ConfigError, RunFolderError, ScoringFailure
from searchrl.plugins import load_plugins
from searchrl.programs.evaluate import evaluate
from searchrl.runs import rescoring
from searchrl.runs.rescoring import Scored, compare_phases, read_recorded, score_again
from searchrl.statistics import mean

PLUGINS = load_plugins()
ASKED = {
    "policy": "scripted:two_search_regex",
    "tasks": [{"env": "regulations", "reward": "0.2*format+em"}],
    "eval": {"num_tasks": 1, "forced": False},
}
CONFIG = name_defaults(build_config(ASKED), PLUGINS)


@pytest.fixture(scope="module")
def row() -> dict[str, Any]:
    """A row that a program wrote."""
    rollout = evaluate(CONFIG).rollouts[0]
    written: dict[str, Any] = json.loads(json.dumps(rollout_record(rollout, "eval", {})))
    return written


def changed(row: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return copy.deepcopy(row) | facts


def test_episodes_of_another_step_phase_or_prompt_are_another_group(row: dict[str, Any]) -> None:
    about = [("during", 10, "g"), ("during", 20, "g"), ("train", 10, "g"), ("train", 10, "h")]
    rows = [changed(row, phase=p, step=s, group_id=g, origin="sampled") for p, s, g in about]
    replayed = changed(row, phase="train", origin="replay")  # no figure of the policy
    found = read_recorded([*rows, rows[0], replayed], CONFIG, PLUGINS)
    assert len({one.group for one in found}) == 4 and found[0].group == found[-1].group
    assert [one.phase for one in found[:4]] == [phase for phase, _, _ in about]
    assert found[1].name == f"during.20/{row['rollout_id']}" and found[1].episode.step == 20
    with pytest.raises(RunFolderError, match="is of env 'gone', and the run has regulations"):
        read_recorded([changed(row, env="gone")], CONFIG, PLUGINS)


def test_an_episode_is_read_as_it_was_played(row: dict[str, Any]) -> None:
    failure = {"kind": "scoring", "owner": "reward 'x'", "message": "late"}
    unpaid = changed(row, failure=failure, reward=None, unscored="late")
    gone = changed(unpaid, failure=failure | {"kind": "environment"}, stop_reason="failed")
    plain, again, lost = read_recorded([row | {"unscored": "no"}, unpaid, gone], CONFIG, PLUGINS)
    assert (plain.unscored, again.unscored, again.reward) == (None, "late", None)
    # What failed in scoring is tried again; an episode that failed stays without a score.
    assert again.episode.failure is None
    assert lost.episode.failure is not None
    assert lost.episode.failure.kind is FailureKind.ENVIRONMENT
    assert plain.episode.num_model_tokens == row["authors"].count("M") > 0
    assert plain.episode.env_return == sum(turn["reward"] for turn in row["turns"])
    turn = row["turns"][-1] | {"text": "read in a way of its own"}
    turns = [turn | {"payload": None}, turn | {"action": "act", "payload": "left"}]
    (read,) = read_recorded([changed(row, turns=turns, final_answer="5 h")], CONFIG, PLUGINS)
    assert [one.action.payload for one in read.episode.turns] == ["5 h", "left"]
    shown = plain.episode.passages[0]
    assert shown.id == row["turns"][0]["passages"][0]
    for read in (lambda: shown.text, lambda: plain.episode.task.meta.get("x")):
        with pytest.raises(ScoringFailure, match="is not in stored rollouts"):
            read()


def test_only_the_components_of_the_new_reward_are_run(row: dict[str, Any]) -> None:
    recorded = read_recorded([row, changed(row, reward=None)], CONFIG, PLUGINS)
    groups, real = list[Any](), rescoring.score_together
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescoring, "score_together", lambda w, g: groups.extend(g) or real(w, g))
        found = score_again(recorded, CONFIG, PLUGINS, "1-format")
    assert groups == [one.group for one in recorded]
    assert [one.reward for one in found] == [0.0, 0.0] and found[1].unscored is None
    assert found[0].scores.keys() == {"format"} and found[0].name == recorded[0].name
    two = [{"env": "regulations", "reward": reward} for reward in ("em", "f1")]
    with pytest.raises(ConfigError, match="several tasks of env 'regulations'"):
        read_recorded([], name_defaults(build_config({"tasks": two}), PLUGINS), PLUGINS)


def scored(number: int, reward: float | None, group: str, task: str, phase: str = "a") -> Scored:
    episode = Episode(Task(task, "test", 0, f"q-{task}", answers=("x",)), final_answer="y")
    return Scored(f"r{number}", group, phase, episode, reward, {}, None)


def test_two_rewards_are_compared_by_hand() -> None:
    """Ranks from 0: those of the first are 0, 1/3, 2/3, 1, and r2 and r3 change places."""
    first = [scored(n, r, g, t) for n, r, g, t in (
        (0, 0.0, "g", "t0"), (1, 1.0, "g", "t1"), (2, 2.0, "h", "t2"), (3, 4.0, "h", "t2"),
    )]  # fmt: skip
    rewards: list[float | None] = [0.0, 1.0, 4.0, 3.0]
    second = [replace(one, reward=reward) for one, reward in zip(first, rewards, strict=True)]
    lost = [scored(4, None, "h", "t3"), scored(5, 9.0, "h", "t3"), scored(6, None, "h", "t3")]
    other = [scored(4, 1.0, "h", "t3"), scored(5, None, "h", "t3"), scored(6, 1.0, "h", "t3")]
    alike = [scored(n, 1.0, "i", "t1") for n in (7, 8)]
    found = compare_phases([*first, *lost], [*second, *other])["a"]
    more = compare_phases([*first[:2], *alike], [*second[:2], *alike])["a"]
    assert (more["groups"], more["group_tau"]) == (1, 1.0)
    assert (found["n"], found["unscored"], found["groups"]) == (4, [2, 1], 2)
    assert (found["first"]["value"], found["second"]["value"]) == (7 / 4, 2.0)
    wide = (-float("inf"), float("inf"))
    assert found["first"] == mean([0.0, 1.0, 2.0, 4.0], wide, ["g", "g", "h", "h"])
    assert found["kendall_tau"] == pytest.approx((5 - 1) / 6)
    assert found["spearman_rho"] == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert found["group_tau"] == 0.0  # 1 in g, -1 in h
    (shown,) = found["disagreements"]  # one a task: of two that are as far apart, the first
    assert (shown["rollout"], shown["question"], shown["expected"]) == ("r2", "q-t2", ["x"])
    assert (shown["first"]["reward"], shown["second"]["reward"]) == (2.0, 4.0)
    assert (shown["first"]["rank"], shown["second"]["rank"]) == pytest.approx((2 / 3, 1.0))


def test_phases_are_compared_apart_and_what_is_constant_has_no_correlation() -> None:
    first = [scored(n, float(n), "g", f"t{n}", "ab"[n > 0]) for n in range(5)]
    second = [replace(one, reward=4.0 - (one.reward or 0.0)) for one in first]
    alone, rest = (compare_phases(first, second, 2)[phase] for phase in "ab")
    assert alone["n"] == 1 and alone["kendall_tau"] is alone["group_tau"] is None
    assert alone["disagreements"] == [] and rest["group_tau"] == -1.0
    assert [one["rollout"] for one in rest["disagreements"]] == ["r1", "r4"]
    nothing = [scored(0, None, "g", "t")]
    assert compare_phases(nothing, nothing)["a"]["first"] is None
