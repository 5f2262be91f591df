"""Refusals of a run that is certainly hopeless, and warnings about one that may be.

These checks need the tasks and the algorithm of a run, but no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from searchrl.algorithms.record import Algorithm, Ask, Hooks
from searchrl.config import RunConfig
from searchrl.config.packaged import EMBEDDED
from searchrl.core.advantage import Column, StepScores
from searchrl.core.group import TrainItem
from searchrl.core.trajectory import Trajectory, TurnStop
from searchrl.engine.learning.step_groups import turn_surplus
from searchrl.engine.learning.workers import Workers
from searchrl.engine.metrics.evaluation import tasks_played
from searchrl.engine.metrics.metrics import Metrics
from searchrl.engine.metrics.remarks import find_blurred_golds
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.world import TaskWorld
from searchrl.envs.splits import TRAIN
from searchrl.errors import ConfigError
from searchrl.programs.setup.init_from import find_source
from searchrl.programs.setup.planning import Plan

NEED_GOLD = ("support_recall", "all_gold")
"""Components that need the ids of gold passages."""
_ENOUGH = 30
"""Held-out tasks from which on a figure says something."""
_PROBED = 32
"""Training tasks that are looked at, evenly spread."""


def ensure_can_learn(config: RunConfig, algorithm: Algorithm, worlds: Sequence[TaskWorld]) -> None:
    """Refuse a run in which every gradient would be 0, or the reward never has a value."""
    if config.rollout.group_size == 1 and not _learns_alone(algorithm):
        raise ConfigError(
            f"rollout.group_size = 1: algorithm '{config.algorithm.name}' compares the rollouts of "
            "a group with each other, and one rollout has nothing to be compared with. Every "
            "advantage would be 0, so nothing can be learned: use --group-size 2 or more (8 is "
            "usual)"
        )
    for world in worlds:
        if algorithm.branches and (world.is_served or world.compacts or world.scorer.group_names):
            what = "has an agent, which cannot play its turns again"
            if world.compacts:
                what = "has a wrapper that compacts, and a branch begins in one context"
            elif not world.is_served:
                what = f"has a reward of whole groups ({', '.join(world.scorer.group_names)})"
            raise ConfigError(
                f"algorithm '{config.algorithm.name}' lets rollouts branch, and env "
                f"'{world.name}' {what}; take another algorithm, such as grpo"
            )
        is_split = world.is_served or world.compacts
        if is_split and algorithm.critic is not None and algorithm.critic.looks_ahead:
            what = "an agent" if world.is_served else "a wrapper that compacts"
            raise ConfigError(
                f"env '{world.name}' has {what}: turns need not follow from each other, "
                f"and algorithm '{config.algorithm.name}' reads the value of the next one: take "
                "gamma and lam of 1 (--set algorithm.gamma=1 --set algorithm.lam=1)"
            )
        for name in world.scorer.schedule.names:
            if not _applies_somewhere(world, name):
                raise ConfigError(
                    f"reward '{name}' says nothing about the tasks of env '{world.name}': none of "
                    f"the training tasks looked at has what it needs. Leave it out of --reward "
                    f"({world.scorer.schedule}), or give the tasks what it needs"
                    + (" (supporting_ids in the rows)" if name in NEED_GOLD else "")
                    + "".join(f". It says: {note}" for note in world.notes)
                )


def ensure_can_draw_ahead(config: RunConfig, algorithm: Algorithm, workers: Workers) -> None:
    """Refuse `scale.max_staleness` where older weights cannot sample, or may not."""
    if not config.scale.max_staleness:
        return
    problem = ""
    if not algorithm.corrects_sampler:
        problem = (
            f"algorithm '{algorithm.name}' does not correct for tokens that older weights sampled; "
            "use --algorithm tis or --algorithm masked_tis"
        )
    elif config.scale.backend is None:
        problem = (
            "the next step is sampled while the weights change, so the sampler needs a copy of its "
            "own: --set scale.backend=copy, or another backend"
        )
    elif algorithm.branches:
        problem = f"algorithm '{algorithm.name}' may read the weights where rollouts branch"
    elif workers.size > 1:
        problem = "torchrun's processes exchange rollouts and gradients in turn; start one process"
    if problem:
        raise ConfigError(f"scale.max_staleness = 1: {problem}")


def _learns_alone(algorithm: Algorithm) -> bool:
    """Return True if a group of one rollout can have advantages, as with a batch baseline."""
    if type(algorithm.hooks).extend is not Hooks.extend or algorithm.branches:
        return True  # it may add rollouts to the groups
    items = [TrainItem(Trajectory(name, name), float(name == "b")) for name in "ab"]
    for item in items:
        item.trajectory.append_model([0], [0.0], version=0, reason=TurnStop.EOS)
    two = StepScores([0.0, 1.0], ["a", "b"], [True, True], items, [[0.0], [1.0]])
    try:
        advantages = algorithm.advantages(two)
    except Exception:  # one that needs more than this is not judged here
        return True
    return any(any(a.values) if isinstance(a, Column) else a for a in advantages)


def _applies_somewhere(world: TaskWorld, name: str) -> bool:
    """Return True if a reward component says something about one of some training tasks."""
    if name not in world.scorer.selective:
        return True
    count = world.num_tasks(TRAIN)
    indices = dict.fromkeys(n * count // _PROBED for n in range(_PROBED))
    try:
        return any(world.scorer.applies(name, world.look_at(TRAIN, index)) for index in indices)
    except Exception:  # of a plugin: the episode that meets it names its owner
        return True


def training_warnings(plan: Plan, worlds: Sequence[TaskWorld]) -> Iterator[str]:
    """Yield what makes a run of `train` hopeless or its figures worthless, and what to do."""
    foreign = [w for w in worlds if w.entry.policy_for(w.config.protocol.name) != EMBEDDED]
    # Whoever names the policy of another package knows what it is for.
    if plan.model.embedded == EMBEDDED and foreign:
        env = foreign[0]
        yield (
            "the embedded tiny model was taught school regulations only; on "
            f"env '{env.name}' with protocol '{env.config.protocol.name}' it will hardly ever earn "
            "a reward. To learn, name a larger model (--model Qwen/Qwen3-0.6B), or teach this one "
            "first with searchrl sft --model tiny and go on with --init-from"
        )
    yield from few_tasks(plan.config, worlds)
    yield from find_blurred_golds(worlds, plan.config.normalization)


def note_turn_scores(algorithm: Algorithm, rollouts: Sequence[Rollout]) -> str:
    """A remark where a reward scores turns and the algorithm learns from something else, or ""."""
    reads_turns = Ask.TURN_REWARDS in algorithm.asks
    gaps = [gap for gap in map(turn_surplus, rollouts) if gap is not None]
    if reads_turns and any(gaps):
        return (
            f"the scores of turns do not add up to the recorded reward (in {sum(map(bool, gaps))} "
            f"of {len(gaps)} episodes, by up to {max(map(abs, gaps)):.3g}), and algorithm "
            f"'{algorithm.name}' learns from the turns: it may prefer an episode whose reward is "
            "lower. The metric `turn_surplus` shows the difference; a reward whose value is the "
            "sum of its per_turn has none"
        )
    if reads_turns or not gaps:
        return ""
    return (
        f"the reward scores every turn, and algorithm '{algorithm.name}' reads the episode's: all "
        "turns of an episode get one advantage. --algorithm grpo_turns tells them apart"
    )


def unready_policy(
    config: RunConfig, worlds: Sequence[TaskWorld], before: Metrics
) -> Iterator[str]:
    """Warn of a policy whose share of well-formed turns is below the protocol's `min_format`."""
    for world in worlds:
        least, turns = getattr(world.protocol, "min_format", None), before.get("turns")
        if least is None or turns is None:
            continue
        name = world.config.protocol.name
        show = (
            f"Show it more first: searchrl sft --env {world.name} --protocol {name}, then "
            "--init-from with that run"
        )
        share = 1 - before["invalid_turns"]["value"] / max(1.0, turns["value"])
        if share < least:
            yield (
                f"{share:.0%} of its turns are well-formed before training, and protocol '{name}' "
                f"asks for {least:.0%}. {show}"
            )
        source = find_source(config.init_from)
        rows = [] if source is None else source.read_metrics().rows
        seen = [row["metrics"]["epochs"]["value"] for row in rows if "epochs" in row["metrics"]]
        if seen and seen[-1] < 1:
            yield f"the policy has seen {seen[-1]:.2g} of an epoch of its demonstrations. {show}"


def few_tasks(config: RunConfig, worlds: Sequence[TaskWorld]) -> Iterator[str]:
    """A warning for every task of a run whose figures will say little, with what to do."""
    settings = config.eval
    for world in worlds:
        played = tasks_played(worlds, world, settings.split, settings.num_tasks)
        if played >= _ENOUGH:
            continue
        is_all = played == world.num_tasks(settings.split)
        more = "give it more tasks" if is_all else "raise eval.num_tasks"
        yield (
            f"only {played} held-out tasks of env '{world.name}' (split '{settings.split}'), so no "
            f"change will be clear; {more} ({_ENOUGH} at least)"
        )


def ensure_whole_distribution(config: RunConfig) -> None:
    """Refuse to train on samples of a cut distribution unless that is asked for."""
    if not config.sampling.cuts or config.sampling.allow_truncated:
        return
    raise ConfigError(
        f"sampling.{config.sampling.cuts} cuts what training may draw: the ratio is then too large "
        "by the probability left out of each draw. Keep it for `searchrl eval`; or, to train on it "
        "all the same, --set sampling.allow_truncated=true (the metric log_kept_mass, in nats per "
        "token, says how biased the ratio is)"
    )
