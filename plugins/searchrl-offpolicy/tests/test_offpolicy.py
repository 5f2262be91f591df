"""Mixed groups by hand: advantage, weight and gradient of every token; what a step asks for."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from searchrl_offpolicy.algorithm import Mixer, make_exgrpo, make_hybrid, make_luffy
from searchrl_offpolicy.experience import Experience, Success, bucket_chances
from searchrl_offpolicy.loss import mixed_loss
from searchrl_offpolicy.traces import read_traces

from searchrl import ConfigError
from searchrl.algorithms import Origin, Probe, Prompt, Trajectory, TurnStop
from searchrl.algorithms.builtin import make_grpo
from searchrl.contracts import Episode, EpisodeTurn, Task
from searchrl.core.columns import loss_columns
from searchrl.core.group import Group, TrainItem
from searchrl.core.reduction import LossSettings
from searchrl.core.trajectory import Reading
from searchrl.engine.learning.packing import pack_step
from searchrl.engine.rollout.rollout import Rollout
from searchrl.rewards.components import FunctionReward
from searchrl.rewards.expression import RewardSchedule
from searchrl.rewards.scorer import ScoredEpisode, Scorer
from searchrl.testing import assert_conforms

SETTINGS = LossSettings(0.2, 0.2, 0.0, "sequence-mean")
GAMMA = 0.1


def scorer(reward: str, **ranges: tuple[float, float]) -> Scorer:
    """One that scores nothing: it says what there is."""
    components = {
        name: FunctionReward(name, lambda episode: 0.0, ends, True) for name, ends in ranges.items()
    }
    return Scorer(components, RewardSchedule.parse(reward))


SCORER = scorer("format", format=(0.0, 1.0))
MIXED = scorer("format+em", format=(0.0, 1.0), em=(0.0, 1.0))


def rollout(
    name: str, turns: list[list[int]], logp: float | None = -0.5, version: int = 0
) -> Trajectory:
    """Two ids of a prompt, then turns with an id of the environment after each."""
    origin = Origin.SAMPLED if logp is not None else Origin.DEMONSTRATION
    made = Trajectory(name, "g", "env", "task", origin)
    made.append_prompt([1, 2])
    for ids in turns:
        logps = None if logp is None else [logp] * len(ids)
        made.append_model(ids, logps, version=version, reason=TurnStop.STOP_STRING)
        made.append_env([9])
    return made


def first(row: Any, name: str) -> float:
    return float(row.columns[name].values[0])


def step_of(items: list[TrainItem], logp: float) -> tuple[Any, Any, Any, list[Any]]:
    """(loss, stats, gradient over trained tokens, packed rollouts) at a policy of one log-prob."""
    kept = replace(SETTINGS, beta=1.0)  # groups of one reward, too
    rows = pack_step([Group("g", tuple(items))], make_luffy(traces="x"), kept).rows
    spread = [(row, old) for row in rows for old in row.over_tokens("sampler_logp")]
    logp_N = torch.full((len(spread),), logp, dtype=torch.float64, requires_grad=True)
    is_off = [row.is_off for row, _ in spread]
    columns = loss_columns(
        logp_N,
        torch.tensor([old for _, old in spread], dtype=torch.float64),
        torch.tensor([first(row, "advantage") for row, _ in spread], dtype=torch.float64),
        torch.tensor([first(row, "weight") for row, _ in spread], dtype=torch.float64),
        is_off_T=torch.tensor(is_off) if any(is_off) else None,
    )
    loss, stats = mixed_loss(columns, SETTINGS, on=1.0, off=0.5, gamma=GAMMA)
    loss.backward()
    return loss, stats, logp_N.grad, rows


def demonstration(name: str, reward: float, turns: list[list[int]]) -> TrainItem:
    return TrainItem(rollout(name, turns, None), reward)


def sampled(name: str, reward: float, turns: list[list[int]]) -> TrainItem:
    return TrainItem(rollout(name, turns), reward)


def test_seven_rollouts_and_a_demonstration_by_hand() -> None:
    """Rewards 0 0 0 0 0 0 1 and 1: mean 1/4, standard deviation sqrt(3)/4."""
    items = [sampled(f"r{n}", 0.0, [[3, 4]]) for n in range(6)]
    items += [sampled("r6", 1.0, [[3], [5]]), demonstration("d", 1.0, [[3], [6, 7]])]
    logp = math.log(0.3)
    _, stats, gradient, rows = step_of(items, logp)
    sigma = math.sqrt(3) / 4 + 1e-6
    low, high = -0.25 / sigma, 0.75 / sigma
    assert [first(row, "advantage") for row in rows] == pytest.approx(
        [low] * 6 + [high] * 2, abs=1e-6
    )
    # Prompt and environment have no weight: two tokens of each rollout, three of the demonstration.
    assert [first(row, "weight") for row in rows] == pytest.approx(
        [1 / 16] * 7 + [1 / 24], abs=1e-6
    )
    assert [sum(row.mask) for row in rows] == [2] * 7 + [3]
    ratio = 0.3 / math.exp(-0.5)  # 0.49: below 1 - clip_low, where only what is bad is clipped
    slope = 0.5 * GAMMA * 0.3 / (0.3 + GAMMA) ** 2
    expected = [0.0] * 12 + [-ratio * high / 16] * 2 + [-slope * high / 24] * 3
    assert gradient.tolist() == pytest.approx(expected, abs=1e-6)
    factor = stats.factor_T.tolist()
    assert factor == pytest.approx([1.0] * 14 + [slope] * 3, abs=1e-6)
    assert (stats.num_tokens, stats.num_off, stats.num_clippable) == (17, 3, 14)
    assert stats.means()["ratio_mean"] == pytest.approx(ratio)
    assert stats.means()["off_frac"] == pytest.approx(3 / 17)


def test_without_a_demonstration_it_is_the_loss_of_grpo() -> None:
    from searchrl.algorithms import ppo_clip_loss

    items = [sampled(f"r{n}", float(n == 0), [[3, 4], [5]]) for n in range(4)]
    loss, stats, gradient, rows = step_of(items, -0.4)
    logp_N = torch.full((12,), -0.4, dtype=torch.float64, requires_grad=True)
    columns = loss_columns(
        logp_N,
        torch.full((12,), -0.5, dtype=torch.float64),
        torch.tensor(
            [first(row, "advantage") for row in rows for _ in range(3)], dtype=torch.float64
        ),
        torch.tensor([first(row, "weight") for row in rows for _ in range(3)], dtype=torch.float64),
    )
    theirs, their_stats = ppo_clip_loss(columns, SETTINGS)
    theirs.backward()
    assert torch.equal(loss, theirs) and torch.equal(gradient, logp_N.grad)
    assert stats == their_stats and stats.factor_T is None


def test_a_group_of_demonstrations_alone_has_a_gradient_and_no_nan() -> None:
    items = [demonstration("a", 1.0, [[3, 4]]), demonstration("b", 0.0, [[5]])]
    _, stats, gradient, _ = step_of(items, math.log(GAMMA))
    # pi = gamma is where the slope is largest: 1/4, here times `off`.
    unit = 0.5 * 0.25 * (0.5 / (0.5 + 1e-6))
    assert gradient.tolist() == pytest.approx([-unit / 4] * 2 + [unit / 2], abs=1e-6)
    assert all(math.isfinite(one) for one in stats.means().values())
    assert "ratio_mean" not in stats.means()


def test_a_replay_is_weighed_by_its_recorded_log_probs() -> None:
    own = rollout("old", [[3, 4]], -1.0)
    items = [TrainItem(replace(own, origin=Origin.REPLAY), 1.0), sampled("r", 0.0, [[5, 6]])]
    _, _, gradient, _ = step_of(items, -1.3)
    x = math.exp(-0.3)
    advantage = 0.5 / (0.5 + 1e-6)
    expected = -0.5 * GAMMA * x / (x + GAMMA) ** 2 * advantage / 4
    assert gradient.tolist()[:2] == pytest.approx([expected] * 2, abs=1e-6)


def test_an_algorithm_that_cannot_take_demonstrations_refuses_them() -> None:
    groups = [Group("g", (demonstration("a", 1.0, [[3]]), sampled("b", 0.0, [[4]])))]
    with pytest.raises(ValueError, match="off_policy"):
        pack_step(groups, make_grpo(), SETTINGS)


def success(name: str, reward: float = 1.0) -> Success:
    own = replace(rollout(f"g/{name}", [[3], [4, 5]]), generated_text="said")
    return Success(own, reward, {"em": reward}, (("a", "b"), ("c", "")))


def test_prompts_are_kept_while_they_sometimes_succeed_and_retired_when_they_always_do() -> None:
    known = Experience(capacity=3)
    known.learn((0, None, 1), 2, 4, {"a": success("a"), "b": success("b")})
    known.learn((0, None, 2), 0, 4, {})
    assert list(known.prompts) == [(0, None, 1)] and len(known) == 2
    known.learn((0, "hard", 3), 1, 4, {"c": success("c")})
    known.learn((0, None, 4), 3, 4, {"d": success("d")})
    # Four rollouts are one too many: the oldest leaves, its prompt stays with the other.
    assert len(known) == 3 and list(known.prompts[(0, None, 1)].successes) == ["b"]
    known.learn((0, None, 4), 4, 4, {"e": success("e")})
    assert known.retired == {(0, None, 4)} and len(known) == 2
    known.learn((0, None, 4), 1, 4, {"f": success("f")})
    assert (0, None, 4) not in known.prompts
    known.learn((0, None, 1), 0, 4, {})
    assert list(known.prompts) == [(0, "hard", 3)]


def test_buckets_are_drawn_by_a_normal_around_half_of_the_group() -> None:
    chances = bucket_chances([1, 4, 7], 8)
    assert chances == pytest.approx([math.exp(-4.5) / (1 + 2 * math.exp(-4.5)) if k != 4 else
                                     1 / (1 + 2 * math.exp(-4.5)) for k in (1, 4, 7)])  # fmt: skip
    known = Experience(100)
    for index in range(10):  # nine prompts that succeed once, one that succeeds half of the time
        known.learn((0, None, index), 4 if index == 9 else 3, 8, {str(index): success(str(index))})
    rng = random.Random(0)
    counts = Counter(known.draw(1, 8, rng)[0][2] for _ in range(4000))
    share = 1 / (1 + math.exp(-0.5))
    assert counts[9] / 4000 == pytest.approx(share, abs=0.025)
    assert all(counts[n] / 4000 == pytest.approx((1 - share) / 9, abs=0.015) for n in range(9))
    assert len(set(known.draw(99, 8, rng))) == 10


def test_the_buffer_comes_back_as_it_was() -> None:
    known = Experience(9)
    known.learn((0, None, 1), 2, 4, {"g/a": success("a"), "g/b": success("b", 2.0)})
    known.learn((1, "hard", 7), 1, 4, {"g/c": success("c")})
    known.learn((1, "hard", 8), 4, 4, {"d": success("d")})
    known.prompts[(1, "hard", 7)].num_successes = 3
    other = Experience(9)
    other.load_state_dict(known.state_dict())
    assert other.prompts == known.prompts and other.retired == known.retired
    assert len(other) == 3 and other.draw(3, 4, random.Random(1)) == known.draw(
        3, 4, random.Random(1)
    )


class World:
    """A run of one environment with seeds, whose rollouts earn what is asked for."""

    seed = 0
    scorers = (SCORER,)

    def __init__(self, entropies: dict[str, float]) -> None:
        self.entropies = entropies
        self.measured: list[str] = []

    def read(self, probes: list[Probe]) -> list[Reading]:
        self.measured += [one.trajectory.rollout_id for one in probes]
        nats = (self.entropies.get(one.trajectory.rollout_id, 9.0) for one in probes)
        return [Reading((0.0,), (one,)) for one in nats]


def played(prompt: Prompt, rewards: list[float]) -> Group[Rollout]:
    """The group of a prompt, with the first of these rewards."""
    protocol = SimpleNamespace(
        parse=lambda text: None, final_answer=lambda texts: "x", format_score=lambda texts: 1.0
    )
    world: Any = SimpleNamespace(protocol=protocol, scorer=SCORER, is_served=False)
    rollouts = []
    for n in range(prompt.num_rollouts):
        trajectory = replace(rollout(f"{prompt.group_id}/{n}", [[3]]), group_id=prompt.group_id)
        turns: Any = (EpisodeTurn("said", None),)  # type: ignore[arg-type]
        episode = Episode(Task("t", "train", prompt.index, "?"), turns)
        rollouts.append(Rollout(trajectory, episode, ScoredEpisode(rewards[n]), world, {}))
    return Group(prompt.group_id, tuple(rollouts))


def prompts(step: int, indices: list[int], size: int = 4) -> list[Prompt]:
    return [Prompt(f"s{step}/{n}", 0, None, index, size) for n, index in enumerate(indices)]


def trained(algorithm: Any, groups: list[Any], step: int) -> list[Any]:
    """The groups as they are trained on, after which they are taken in."""
    mixed: list[Any] = algorithm.extend(groups, step)
    added = sum(len(one.rollouts) for one in mixed) - sum(len(one.rollouts) for one in groups)
    assert algorithm.metrics()["off_rollouts"] == added
    return mixed


def test_a_step_asks_known_prompts_again_and_adds_their_most_certain_success() -> None:
    bench = World({"s1/0/0": 2.0, "s1/0/1": 0.5})
    mixer = Mixer(ratio=0.5, threshold=0.35)
    mixer.begin(bench)  # type: ignore[arg-type]
    asked = mixer.ask(prompts(1, [10, 11]), 1)
    assert asked == prompts(1, [10, 11])
    groups = [played(asked[0], [1.0, 1.0, 0.0, 0.0]), played(asked[1], [0.0] * 4)]
    # Two of eight are below the threshold: as GRPO, and the prompt is kept.
    assert trained(mixer, groups, 1) == groups
    asked = mixer.ask(prompts(2, [12, 13]), 2)
    assert asked == prompts(2, [12, 13]) and not bench.measured
    groups = [played(asked[0], [1.0] * 4), played(asked[1], [0.0] * 4)]
    assert trained(mixer, groups, 2) == groups  # half of them: it begins with the next step
    asked = mixer.ask(prompts(3, [14, 15]), 3)
    assert [(one.index, one.num_rollouts) for one in asked] == [(14, 4), (10, 3)]
    groups = [played(asked[0], [0.0] * 4), played(asked[1], [0.0] * 3)]
    mixed = trained(mixer, groups, 3)
    assert mixed[0] == groups[0] and mixed[1].rollouts[:3] == groups[1].rollouts
    replay = mixed[1].rollouts[3]
    assert replay.trajectory.origin is Origin.REPLAY and replay.reward == 1.0
    assert replay.trajectory.sampler_logps == groups[1].rollouts[0].trajectory.sampler_logps
    assert (replay.trajectory.rollout_id, replay.trajectory.group_id) == ("s3/1/off0", "s3/1")
    assert sorted(bench.measured) == ["s1/0/0", "s1/0/1"]
    assert mixer.experience.prompts[(0, None, 10)].num_successes == 1
    # All of its group succeed, the replay among them: never again.
    asked = mixer.ask(prompts(4, [16, 17]), 4)
    trained(mixer, [played(asked[0], [0.0] * 4), played(asked[1], [1.0] * 3)], 4)
    assert mixer.experience.retired == {(0, None, 12), (0, None, 10)} and not mixer.experience


def test_a_success_of_several_segments_is_not_kept() -> None:
    mixer = Mixer(ratio=0.5)
    mixer.begin(World({}))  # type: ignore[arg-type]
    group = played(mixer.ask(prompts(1, [10]), 1)[0], [1.0, 1.0, 0.0, 0.0])
    group.rollouts[0].trajectory.begin_segment("summary")
    trained(mixer, [group], 1)
    assert [*mixer.experience.prompts[0, None, 10].successes] == ["s1/0/1"]


def test_an_entropy_is_the_mean_over_the_tokens_of_all_turns() -> None:
    nats = {(3,): (1.0,), (4, 5): (2.0, 4.5)}
    mixer = Mixer()
    mixer.trainer = SimpleNamespace(  # type: ignore[assignment]
        read=lambda probes: [Reading((0.0,) * len(p.text), nats[p.text]) for p in probes]
    )
    assert mixer._entropies([rollout("r", [[3], [4, 5]]), Trajectory("mute", "g")]) == [2.5, 0.0]


def test_of_several_successes_the_one_with_the_lowest_entropy_is_replayed() -> None:
    mixer = Mixer(ratio=1.0, threshold=0.0)
    mixer.begin(World({"s1/0/0": 2.0, "s1/0/1": 0.5, "s1/0/2": 1.0}))  # type: ignore[arg-type]
    asked = mixer.ask(prompts(1, [10]), 1)
    group = played(asked[0], [1.0, 1.0, 1.0, 0.0])
    marked = [
        replace(one, trajectory=replace(one.trajectory, task_id=f"number {n}"))
        for n, one in enumerate(group.rollouts)
    ]
    trained(mixer, [replace(group, rollouts=tuple(marked))], 1)
    asked = mixer.ask(prompts(2, [11]), 2)
    (mixed,) = trained(mixer, [played(asked[0], [0.0] * 3)], 2)
    assert mixed.rollouts[-1].trajectory.task_id == "number 1"


@pytest.mark.parametrize(
    ("scores", "success", "is_one"),
    [
        ({"format": 1.0, "em": 0.0}, "", False),  # a reward of 1, and a wrong answer
        ({"format": 0.0, "em": 1.0}, "", True),
        ({"format": 1.0, "em": 0.0}, "format", True),
        ({"format": 0.0, "em": 1.0}, "format", False),
        ({"format": 1.0, "em": 0.0}, "reward", False),
        ({"format": 1.0, "em": 1.0}, "reward", True),
        ({"format": 1.0}, "", False),  # nothing to say of this task
    ],
)
def test_a_success_is_the_headline_at_its_greatest_value(
    scores: dict[str, float], success: str, is_one: bool
) -> None:
    """With `format+em`, wrong answers in good form were replayed as successes."""
    mixer = Mixer(ratio=1.0, threshold=0.0, success=success)
    mixer.begin(World({}))  # type: ignore[arg-type]
    group = played(mixer.ask(prompts(1, [10]), 1)[0], [sum(scores.values()), 0.0, 0.0, 0.0])
    scored = [
        ScoredEpisode(sum(own.values()), own) for own in (scores, *3 * [{"format": 0.0, "em": 0.0}])
    ]
    world: Any = SimpleNamespace(protocol=None, scorer=MIXED, is_served=False)
    marked = zip(group.rollouts, scored, strict=True)
    rollouts = tuple(replace(one, scored=own, world=world) for one, own in marked)
    trained(mixer, [replace(group, rollouts=rollouts)], 1)
    assert bool(mixer.experience) is is_one


@pytest.mark.parametrize(
    ("given", "success", "match"),
    [
        (scorer("env", env=(-math.inf, math.inf)), "", "'env', which has none"),
        (scorer("count", count=(0.0, math.inf)), "", "'reward', which has none"),
        (MIXED, "f1", r"'f1', which is not scored .*algorithm.success=NAME \(format, em\)"),
        (scorer("1-count", count=(0.0, math.inf)), "", ""),
        (scorer("env", env=(-math.inf, 1.0)), "", ""),
    ],
)
def test_what_cannot_say_when_it_succeeds_is_refused(
    given: Scorer, success: str, match: str
) -> None:
    bench = World({})
    bench.scorers = (given,)
    for algorithm in (make_exgrpo(success=success), make_luffy(off=0.0, success=success)):
        refuses = bool(match) and algorithm.name == "exgrpo"
        with pytest.raises(ConfigError, match=match) if refuses else nullcontext():
            algorithm.hooks.begin(bench)  # type: ignore[arg-type]


def test_a_stored_success_of_another_prompt_text_is_not_mixed_in() -> None:
    mixer = Mixer(ratio=1.0, threshold=0.0)
    mixer.begin(World({}))  # type: ignore[arg-type]
    trained(mixer, [played(mixer.ask(prompts(1, [10]), 1)[0], [1.0, 0.0, 0.0, 0.0])], 1)
    group = played(mixer.ask(prompts(2, [11]), 2)[0], [0.0] * 3)
    other = [
        replace(one, trajectory=_with_prompt(one.trajectory, [7, 7, 7])) for one in group.rollouts
    ]
    (mixed,) = trained(mixer, [replace(group, rollouts=tuple(other))], 2)
    assert len(mixed.rollouts) == 3


def _with_prompt(own: Trajectory, ids: list[int]) -> Trajectory:
    made = Trajectory(own.rollout_id, own.group_id, own.env, own.task_id)
    made.append_prompt(ids)
    made.append_model([3], [-0.5], version=0, reason=TurnStop.STOP_STRING)
    return made


def test_tasks_with_demonstrations_get_their_share_and_one_rollout_less() -> None:
    mixer = Mixer(share=0.5)
    mixer.begin(World({}))  # type: ignore[arg-type]
    shown = played(Prompt("demonstration", 0, None, 77, 1), [1.0]).rollouts[0]
    mixer.demonstrations = {(0, 77): [shown]}
    asked = mixer.ask(prompts(1, [10, 77, 12, 13]), 1)
    assert [(one.index, one.num_rollouts) for one in asked] == [(77, 3), (77, 3), (12, 4), (13, 4)]
    groups = [played(one, [0.0] * 4) for one in asked]
    mixed = trained(mixer, groups, 1)
    assert [len(one.rollouts) for one in mixed] == [4, 4, 4, 4]
    names = [one.rollouts[-1].trajectory.rollout_id for one in mixed[:2]]
    assert names == ["s1/0/off0", "s1/1/off0"] and mixed[2:] == groups[2:]
    assert mixer.state_dict() == {}


def test_without_weight_nothing_is_asked_or_added() -> None:
    for algorithm in (
        make_luffy(off=0.0),
        make_exgrpo(off=0.0, threshold=0.0),
        make_hybrid(off=0.0, threshold=0.0),
    ):
        algorithm.hooks.begin(World({}))  # type: ignore[arg-type]
        asked = algorithm.hooks.ask(prompts(1, [10, 11]), 1)
        groups = [played(asked[0], [1.0, 0.0, 0.0, 0.0]), played(asked[1], [1.0] * 4)]
        assert asked == prompts(1, [10, 11]) and trained(algorithm.hooks, groups, 1) == groups
        assert algorithm.hooks.state_dict() == {}


@pytest.mark.parametrize("make", [make_luffy, make_hybrid])
def test_traces_have_to_be_named(make: Any) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.traces=PATH"):
        make().hooks.begin(World({}))


@pytest.mark.parametrize("name", ["luffy", "exgrpo", "hybrid"])
def test_they_pass_the_check_of_algorithms(name: str) -> None:
    assert_conforms(name, kind="algorithm", plugins=["searchrl_offpolicy"])


def test_nulls_of_rows_in_other_shapes_are_nothing(tmp_path: Path) -> None:
    """A Parquet file of several shapes has every key in every row."""
    empty = dict.fromkeys(("id", "turns", "target", "messages", "conversations", "prompt"))
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    shapes = ({"messages": chat}, {"conversations": chat}, {"prompt": "q", "response": "a"})
    file = tmp_path / "t.jsonl"
    file.write_text("".join(f"{json.dumps(empty | shape)}\n" for shape in shapes))
    assert {(t.question, t.turns, t.task_id) for t in read_traces(str(file))} == {("q", ("a",), "")}
