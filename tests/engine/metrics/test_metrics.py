"""Metrics: intervals stay in their range and hold the truth as often as they say."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from searchrl.config.sections import EvalConfig
from searchrl.core.episode import (
    Action,
    EpisodeTurn,
    Failure,
    FailureKind,
    Passage,
    StopReason,
    Task,
)
from searchrl.core.group import Group
from searchrl.engine.metrics.evaluation import (
    count_episodes,
    count_tasks,
    evaluate_both,
    run_episodes,
    summary_metrics,
    tasks_played,
)
from searchrl.engine.metrics.metrics import label_tasks, summarise
from searchrl.errors import ConfigError
from searchrl.rewards.expression import parse_expression
from searchrl.statistics import ZERO_OR_ONE, Range, exact, proportion


class TestNotMeasured:
    def test_no_scored_episode_leaves_only_the_counts_of_those(self) -> None:
        """`reward 0.000 [0, 1] n 0` was printed."""
        assert summarise([]) == {} and set(summarise([rollout(None)])) == {"failed", "unscored"}

    def test_a_task_without_episodes_has_no_metrics(self) -> None:
        one, other = rollout(1.0), rollout(1.0)
        metrics = summarise([one], [one.world, other.world])
        assert "toy.0/reward" in metrics and not any(key.startswith("toy.1") for key in metrics)


def rollout(
    reward: float | None,
    expression: str = "em",
    ranges: dict[str, Range] | None = None,
    **more: Any,
) -> Any:
    parsed = parse_expression(expression)
    scorer = SimpleNamespace(
        schedule=SimpleNamespace(at=lambda step: parsed),
        ranges=ranges or {"em": ZERO_OR_ONE},
        figures={},
        headline=more.get("headline", "em"),
    )
    scores = {} if reward is None else more.pop("scores", {"em": reward})
    return SimpleNamespace(
        is_scored=reward is not None,
        reward=reward,
        scored=SimpleNamespace(reward=reward, scores=scores, failure=None),
        world=more.get("world")
        or SimpleNamespace(
            max_turns=4,
            name="toy",
            scorer=scorer,
            is_served=False,
            compacts=False,
            can_open=lambda kind: False,
            can_force=lambda kind: False,
        ),
        trajectory=SimpleNamespace(group_id=more.get("group_id", object()), views=()),
        episode=SimpleNamespace(
            step=0,
            turns=more.get("turns", ()),
            num_model_tokens=3,
            stop_reason=more.get("stop_reason", StopReason.ANSWERED),
            failure=more.get("failure"),
            num_tool_calls=more.get("num_tool_calls", 0),
            is_passive=more.get("is_passive", False),
            task=Task(
                "t", "test", 0, "?", kind=more.get("kind", "only"), slices=more.get("slices", ())
            ),
        ),
    )


def test_tasks_that_are_judged_by_different_rewards_are_told_by_their_own() -> None:
    first = rollout(1.0)
    second = rollout(9.0, "env", {"env": (0.0, 9.0)}, scores={"env": 9.0}, headline="env")
    second.world.name = "other"
    metrics = summarise([first, second])
    assert {"reward/only", "toy/em/only", "other/env/only"} <= set(metrics)
    assert not {"em/only", "toy/reward/only"} & set(metrics)
    # Both ranges count, and that of the step in which it was earned.
    assert metrics["reward"]["value"] == 5 < metrics["reward"]["high"] <= 9
    first.episode.step = 3
    stages = {0: parse_expression("9*em"), 3: parse_expression("em")}
    first.world.scorer.schedule.at = stages.__getitem__
    assert stages[3].between({"em": (0.0, 1.0)}) == (0.0, 1.0)
    # Most turns are known, and no bound of tokens is.
    assert metrics["turns"]["value"] == 0 < metrics["turns"]["high"] <= 4
    assert "high" not in metrics["model_tokens"]


def test_rollouts_of_one_group_are_counted_as_alike() -> None:
    first = rollout(1.0)
    apart = [rollout(float(i % 2), world=first.world) for i in range(16)]
    alike = [rollout(float(i < 8), world=first.world, group_id=i // 4) for i in range(16)]
    near, far = summarise(apart), summarise(alike)
    for name in ("reward", "em", "em/only"):
        assert near[name] == proportion(8, 16)
        assert far[name]["n"] == 16 and far[name]["high"] > near[name]["high"] + 0.05


def test_slices_are_reported_beside_the_kinds_and_after_them() -> None:
    world = rollout(1.0).world
    played = [
        rollout(1.0, world=world, kind="lookup", slices=("seen",)),
        rollout(0.0, world=world, kind="lookup", slices=("unseen", "long")),
        rollout(1.0, world=world, kind="two_hop", slices=("unseen",)),
        rollout(1.0, world=world, kind="two_hop"),
        rollout(None, world=world, kind="two_hop", slices=("failed_ones",)),
    ]
    metrics = summarise(played)
    names = [name for name in metrics if name.startswith("em/")]
    assert names == ["em/lookup", "em/two_hop", "em/long", "em/seen", "em/unseen"]
    assert metrics["em/lookup"] == metrics["em/unseen"] == proportion(1, 2)
    assert metrics["em/two_hop"] == proportion(2, 2) and metrics["em/long"] == proportion(0, 1)


WEIGHTS = st.floats(-2, 2).map(lambda weight: round(weight, 2))


@given(
    st.tuples(WEIGHTS, WEIGHTS, WEIGHTS), st.lists(st.tuples(*[st.floats(0, 1)] * 2), min_size=1)
)
def test_interval_of_the_reward_stays_between_what_its_weights_allow(
    weights: tuple[float, float, float], scores: list[tuple[float, float]]
) -> None:
    """`f1` within (0, 1), `shift` within (-1, 3)."""
    ranges = {"f1": ZERO_OR_ONE, "shift": (-1.0, 3.0)}
    expression = f"{weights[0]}*f1+{weights[1]}*shift+{weights[2]}".replace("+-", "-")
    ends = itertools.product(*ranges.values())
    corners = [weights[0] * a + weights[1] * b + weights[2] for a, b in ends]
    played = []
    for f1, part in scores:
        shift = 4 * part - 1
        reward = weights[0] * f1 + weights[1] * shift + weights[2]
        played.append(rollout(reward, expression, ranges, scores={"f1": f1, "shift": shift}))
    metric = summarise(played)["reward"]
    slack = 1e-9
    assert min(corners) - slack <= metric["low"] <= metric["value"]
    assert metric["value"] <= metric["high"] <= max(corners) + slack


def test_tasks_on_one_env_are_told_apart_by_their_place() -> None:
    worlds: list[Any] = [SimpleNamespace(name=name) for name in ("a", "b", "a")]
    assert label_tasks(worlds) == ["a.0", "b", "a.2"]


def test_episodes_that_a_limit_cut_are_counted() -> None:
    cut = (StopReason.TURN_LIMIT, StopReason.TURN_TOKENS, StopReason.TOTAL_TOKENS)
    whole = (StopReason.ANSWERED, StopReason.EOS)
    world = rollout(1.0).world
    episodes = [rollout(1.0, stop_reason=reason, world=world) for reason in (*cut, *whole)]
    assert summarise(episodes)["truncated"]["value"] == 3 / 5


def test_searches_that_find_nothing_are_counted_by_search_and_failures_by_episode() -> None:
    world = rollout(1.0).world
    world.can_force = world.can_open = lambda kind: True

    def search(*passages: Passage, shown: str = "found") -> EpisodeTurn:
        return EpisodeTurn("s", Action("search", ("q",)), passages, shown)

    found, nothing = search(Passage("1", "text")), search()
    # What a limit cut off was never asked; an answer is no search.
    cut, answer = search(shown=""), EpisodeTurn("a", Action("answer", "x"))
    episodes = [
        rollout(1.0, world=world, turns=(found, nothing, nothing, answer)),
        rollout(0.0, world=world, turns=(nothing, cut)),
        rollout(None, world=world, failure=Failure(FailureKind.RETRIEVER, "bm25", "gone")),
        rollout(None, world=world, failure=Failure(FailureKind.ENVIRONMENT, "toy", "broken")),
    ]
    metrics = summarise(episodes)
    empty, failed = metrics["empty_searches"], metrics["failed_retrieval"]
    assert (empty["value"], empty["n"]) == (3 / 4, 4)
    assert (failed["value"], failed["n"]) == (1 / 4, 4)
    assert "empty_searches" not in summarise([rollout(1.0)])
    assert "failed_retrieval" not in summarise([rollout(1.0)]), "there is nothing to search"


@pytest.mark.parametrize("kinds", [(), ("search",), ("search", "tool"), ("tool",)])
def test_figures_by_hand_and_only_where_a_task_can_have_them(kinds: tuple[str, ...]) -> None:
    world = rollout(1.0).world
    world.can_force = world.can_open = lambda kind: kind in kinds
    invalid, answer = (EpisodeTurn("t", Action(kind)) for kind in ("invalid", "answer"))
    spent = Failure(FailureKind.BUDGET, "generator", "spent")
    broken = Failure(FailureKind.ENVIRONMENT, "toy", "broken")
    metrics = summarise(
        [
            rollout(1.0, world=world, turns=(invalid, invalid, answer), num_tool_calls=2),
            rollout(0.0, world=world, turns=(answer,), is_passive=True),
            rollout(0.5, world=world, turns=()),
            rollout(0.5, world=world, turns=(answer, answer)),
            rollout(None, world=world, failure=spent),
            rollout(None, world=world, failure=broken, num_tool_calls=9),
        ]
    )
    found = {name: (metric["value"], metric["n"]) for name, metric in metrics.items()}
    expected = {"reward": (0.5, 4), "turns": (1.5, 4), "model_tokens": (3, 4)}
    expected |= {"invalid_turns": (0.5, 4), "failed": (1 / 6, 6), "unscored": (2 / 6, 6)}
    expected |= {"passive": (0.25, 4), "failed_retrieval": (0, 6)} if kinds else {}
    expected |= {"tool_calls": (0.5, 4)} if "tool" in kinds else {}
    expected |= {"em": (0.5, 4), "em/only": (0.5, 4), "truncated": (0, 4)}
    assert found == expected


class Player:
    """A driver and its tasks: two worlds, of which only the first has searches."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.worlds: list[Any] = [rollout(1.0).world for _ in range(2)]
        for world, name, size in zip(self.worlds, "ab", (9, 2), strict=True):
            world.name, world.num_tasks, world.script = name, lambda _, n=size: n, str.upper
        self.worlds[0].can_force = self.worlds[0].can_open = lambda kind: kind == "search"

    def run(self, requests: list[Any], **options: Any) -> list[Any]:
        """A right answer where a search was forced, else a wrong one."""
        self.options = options

        def say(request: Any) -> Any:
            scores = {"em": 1.0 if request.forced else 0.0}
            return rollout(0.25, scores=scores, world=request.world)

        self.requests += requests
        return [Group(r.group_id, tuple(say(r) for _ in r.rng_keys)) for r in requests]


def test_worlds_share_the_tasks_of_an_evaluation_and_each_plays_at_least_one() -> None:
    world: Any = SimpleNamespace(num_tasks=lambda split: 4)
    assert [tasks_played([world] * 3, world, "test", n) for n in (2, 9, 90)] == [1, 3, 4]


def test_an_evaluation_plays_the_first_tasks_of_a_split_the_first_time_always_alike() -> None:
    asked = []
    for num_samples, seed, script in ((1, 0, None), (3, 0, "guess"), (1, 1, None)):
        player, options = Player(), {"seed": seed, "script": script, "num_samples": num_samples}
        run_episodes(player.worlds, player, split="test", num_tasks=7, **options)  # type: ignore[arg-type]
        asked.append(player.requests)
    once, thrice, other = asked
    places = [("eval/0/0", 0), ("eval/0/1", 1), ("eval/0/2", 2), ("eval/1/0", 0), ("eval/1/1", 1)]
    assert [(r.group_id, r.index) for r in once] == places
    assert {(r.split, r.script) for r in thrice} == {("test", "GUESS")}
    assert [r.rng_keys for r in once] == [r.rng_keys[:1] for r in thrice]
    assert len({key for r in (*thrice, *other) for key in r.rng_keys}) == 4 * len(places)
    player, is_over = Player(), bool
    run_episodes(  # type: ignore[call-overload]
        player.worlds, player, split="test", num_tasks=2, seed=0, step=7, has_logps=False,
        should_stop=is_over,
    )  # type: ignore[arg-type]  # fmt: skip
    assert {(r.step, r.has_logps) for r in player.requests} == {(7, False)}
    assert player.options["should_stop"] is is_over


@pytest.mark.parametrize("num_full", [1, 2])
def test_prompts_that_leave_no_room_are_refused_if_no_other_is_there(num_full: int) -> None:
    player = Player()
    player.limits = SimpleNamespace(max_total_tokens=9)
    reasons = [StopReason.TOTAL_TOKENS] * num_full + [StopReason.ANSWERED]
    played = [rollout(0.0, stop_reason=r, world=player.worlds[0]) for r in reasons[:2]]
    for one in played:
        one.trajectory.num_prompt_tokens = 12
    player.run = lambda requests, **_: [Group("g", tuple(played))]  # type: ignore[method-assign]
    asked: Any = (player.worlds[:1], player)
    if num_full == 1:
        assert len(run_episodes(*asked, split="test", num_tasks=2, seed=0).rollouts) == 2
    else:
        with pytest.raises(ConfigError, match="the shortest has 12 tokens, .* may have 9; raise"):
            run_episodes(*asked, split="test", num_tasks=2, seed=0)


def test_a_summary_has_what_its_tasks_are_scored_with_and_tasks_are_counted_by_split() -> None:
    one, world = exact(1.0), rollout(1.0).world
    world.scorer.names = ("mine",)
    table = dict.fromkeys(
        ["em", "toy/em", "toy/mine", "mine", "other", "em/a", "toy/reward/a"], one
    )
    assert [*table.keys() - summary_metrics(table, [world]).keys()] == ["other"]
    for can_validate, splits in (
        (True, ["train", "validation", "test"]),
        (False, ["train", "test"]),
    ):
        world.can_validate, world.num_tasks = can_validate, len
        found = count_tasks([world], EvalConfig(split="test"))
        assert found == {f"toy/{split}": len(split) for split in splits}


def test_forced_episodes_are_played_once_where_they_can_and_told_beside_the_plain_ones() -> None:
    player = Player()
    settings = EvalConfig(num_tasks=4, split="test")
    result = evaluate_both(player.worlds, player, settings, seed=0, num_samples=2)  # type: ignore[arg-type]
    forced = [r for r in player.requests if r.forced]
    again = Player()
    evaluate_both(again.worlds, again, EvalConfig(num_tasks=4, split="validation"), seed=1, step=5)  # type: ignore[arg-type]
    assert {(r.split, r.step) for r in again.requests} == {("validation", 5)}
    assert not {r.rng_keys[0] for r in again.requests} & {r.rng_keys[0] for r in player.requests}
    names = [(r.group_id, len(r.rng_keys)) for r in forced]
    assert names == [("eval/0/0/search", 1), ("eval/0/1/search", 1)]
    assert (len(result.rollouts), len(result.forced)) == (8, 2)
    values = {name: metric["value"] for name, metric in result.metrics.items()}
    assert values["em"] == values["a/em"] == 0 and values["em_forced"] == values["a/em_forced"] == 1
    assert "b/em_forced" not in values
    assert count_episodes(player.worlds, settings, "test", 4) == 2 + 2 + 2
    plain = evaluate_both(player.worlds, player, EvalConfig(forced=False), seed=0)  # type: ignore[arg-type]
    assert plain.forced == () and "em_forced" not in plain.metrics


def test_an_episode_that_began_with_a_search_stands_for_the_one_that_is_forced_to() -> None:
    """After training all of them did; to play them again took as long as the evaluation itself."""
    player = Player()
    searches = EpisodeTurn("", Action("search", ("q",)))

    def say(request: Any) -> Any:
        made = rollout(0.25, scores={"em": 1.0 if request.forced else 0.5}, world=request.world)
        made.trajectory.group_id = request.group_id
        made.episode.turns = [searches] if request.index in (0, 2) else []
        return made

    player.run = lambda requests, **_: [  # type: ignore[method-assign]
        Group(r.group_id, (say(r),)) for r in player.requests.extend(requests) or requests
    ]
    result = evaluate_both(player.worlds[:1], player, EvalConfig(num_tasks=4), seed=0)  # type: ignore[arg-type]
    forced = [r.group_id for r in player.requests if r.forced]
    assert forced == ["eval/0/1/search", "eval/0/3/search"] and len(result.forced) == 2
    assert result.metrics["em_forced"]["value"] == 0.75 and result.metrics["em_forced"]["n"] == 4
