"""Components that score a whole group: called once per group, one score for each episode."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from searchrl.config import build_config
from searchrl.core.episode import Episode, Failure, FailureKind, Score, Task, Unscored
from searchrl.engine.metrics.metrics import summarise
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import load_plugins
from searchrl.rewards import FunctionGroupReward
from searchrl.rewards.components import BUILTIN_REWARDS
from searchrl.rewards.expression import RewardSchedule
from searchrl.rewards.scorer import ScoredEpisode, Scorer, score_together

TASK = Task("t1", "test", 0, "Where?", answers=("Paris",))
PARIS = Episode(TASK, final_answer="Paris")
ROME = Episode(TASK, final_answer="Rome")
LOST = replace(PARIS, failure=Failure(FailureKind.RETRIEVER, "retriever 'x'", "gone"))


def rare(episodes: Sequence[Episode]) -> list[float]:
    answers = [episode.final_answer for episode in episodes]
    return [float(answers.count(answer) == 1) for answer in answers]


def scorer_of(score: Callable[..., Any], spec: str = "em+probe", **more: Any) -> Scorer:
    component = FunctionGroupReward("probe", score, (0.0, 1.0), is_range=True)
    components = {name: make() for name, make in BUILTIN_REWARDS.items()}
    schedule = RewardSchedule.parse(spec)
    return Scorer({**components, "probe": component}, schedule, group_names=["probe"], **more)


def score(
    scorer: Scorer, episodes: Sequence[Episode], groups: Sequence[str]
) -> list[ScoredEpisode]:
    return score_together([(scorer, episode) for episode in episodes], groups)


def test_each_group_is_scored_once_and_by_itself() -> None:
    seen: list[tuple[Episode, ...]] = []

    def watched(episodes: Sequence[Episode]) -> list[float]:
        seen.append(tuple(episodes))
        return rare(episodes)

    # The groups do not stand together.
    episodes, groups = [PARIS, PARIS, ROME, ROME, ROME], ["a", "b", "a", "b", "b"]
    scored = score(scorer_of(watched), episodes, groups)
    assert [one.scores["probe"] for one in scored] == [1, 1, 1, 0, 0]
    assert [one.reward for one in scored] == [2, 2, 1, 0, 0]
    assert sorted(seen, key=len) == [(PARIS, ROME), (PARIS, ROME, ROME)]


def test_an_episode_that_failed_is_not_part_of_its_group() -> None:
    scored = score(scorer_of(rare), [PARIS, LOST, ROME], ["a"] * 3)
    assert [one.reward for one in scored] == [2, None, 1]
    assert scored[1].failure is not None and scored[1].failure.kind == FailureKind.RETRIEVER


def test_one_episode_alone_is_a_group() -> None:
    assert scorer_of(rare).score(PARIS).scores["probe"] == 1
    assert score(scorer_of(rare), [PARIS, PARIS], [])[0].scores["probe"] == 1


def test_scores_may_be_unscored_or_per_turn_for_single_episodes() -> None:
    def mixed(episodes: Sequence[Episode]) -> list[Any]:
        return [Unscored("no rival"), Score(0.5, per_turn=())]

    first, second = score(scorer_of(mixed), [PARIS, ROME], ["a", "a"])
    assert first.reward is None and first.unscored == "reward 'probe' could not score: no rival"
    assert first.failure is None
    assert (second.reward, second.per_turn) == (0.5, {"probe": ()})


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1.0], "returned 1 scores for a group of 2 episodes"),
        ("01", "returned str for a group"),
        (None, "returned NoneType for a group"),
    ],
)
def test_what_is_no_list_of_as_many_scores_fails_the_whole_group(returned: Any, said: str) -> None:
    scorer = scorer_of(lambda episodes: returned, owners={"probe": "plugin x"})
    for one in score(scorer, [PARIS, ROME], ["a", "a"]):
        assert one.reward is None and one.failure is not None
        assert (one.failure.kind, one.failure.owner) == ("scoring", "reward 'probe' of plugin x")
        assert said in one.failure.message


def test_one_wrong_score_fails_its_own_episode_alone() -> None:
    first, second = score(scorer_of(lambda episodes: [7.0, 1.0]), [PARIS, ROME], ["a", "a"])
    assert first.failure is not None and "7, outside the range (0, 1)" in first.failure.message
    assert second.reward == 1.0


def test_what_it_raises_fails_one_group_and_no_other() -> None:
    def picky(episodes: Sequence[Episode]) -> list[float]:
        if len(episodes) > 1:
            raise IndexError("no pair")
        return [1.0]

    scored = score(scorer_of(picky), [PARIS, ROME, PARIS], ["a", "a", "b"])
    assert [one.reward for one in scored] == [None, None, 2]
    assert scored[0].failure is not None and "IndexError: no pair" in scored[0].failure.message


PLUGIN = """
from searchrl import hookimpl
from searchrl.rewards import FunctionGroupReward, FunctionReward

def size(episodes):
    return [float(len(episodes))] * len(episodes)

@hookimpl
def register_rewards(register):
    component = FunctionGroupReward("size", size, (0.0, 99.0), is_range=True)
    register("size", lambda: component, group=True)
"""


def test_a_plugin_offers_one_that_expressions_name_like_any_other(own_folder: Path) -> None:
    (own_folder / "groups.py").write_text(PLUGIN, "utf-8")
    registry = load_plugins(["groups.py"], strict=True)
    assert registry.get("reward", "groups:size").is_of_group
    config = build_config({"env": "regulations", "reward": "em+0.5*groups:size"})
    (world,) = make_worlds(config, registry)
    expert = world.script("expert")
    requests = [
        RolloutRequest(name, world, "test", index, tuple(range(count)), script=expert)
        for index, (name, count) in enumerate({"a": 3, "b": 1}.items())
    ]
    first, second = make_scripted_driver(config).run(requests)
    assert [r.scored.scores["groups:size"] for r in first.rollouts] == [3, 3, 3]
    assert [r.reward for r in second.rollouts] == [1.5]
    metrics = summarise([*first.rollouts, *second.rollouts])
    assert metrics["groups:size"]["value"] == 2.5
    world.close()
