"""The groups of a step: what is sampled, and what of it is replaced.

Owns dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): a group whose reward is constant has
nothing to compare, so its place goes to another prompt. Prompts are those of `PromptStream`, so
the groups of a step are a function of (seed, step) and the weights; nothing is kept between steps.
`train` is the caller; advantages and updates are not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from searchrl.core.group import Group, Trainable
from searchrl.engine.episodes.metrics import Metrics, exact, proportion
from searchrl.engine.episodes.prompts import PromptStream
from searchrl.engine.episodes.rollout import Rollout, RolloutDriver
from searchrl.engine.learning.workers import Workers
from searchrl.engine.sampling.generator import Generator
from searchrl.engine.sampling.slot_generator import SlotStats


@dataclass(frozen=True, slots=True)
class StepGroups:
    """What a step sampled: one group per place to train on, and the groups that were replaced."""

    groups: tuple[Group[Rollout], ...]
    replaced: tuple[Group[Rollout], ...] = ()
    num_refills: int = 0
    """How often places were filled anew, at most `max_refills`."""

    @property
    def rollouts(self) -> list[Rollout]:
        """Every rollout that was sampled, trained on or not."""
        return [rollout for group in (*self.groups, *self.replaced) for rollout in group.rollouts]


def sample_groups(
    sampler: RolloutDriver,
    prompts: PromptStream,
    step: int,
    *,
    max_refills: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> StepGroups:
    """Sample a group for each prompt of the step and replace groups of constant reward.

    At most `max_refills` times; a group that is still constant then keeps its place. The reward is
    that of the reward expression, and a group without a scored rollout is constant, too.
    """
    places: Sequence[int] = range(prompts.prompts_per_step)
    standing: dict[int, Group[Rollout]] = {}
    replaced: list[Group[Rollout]] = []
    refill = 0
    while True:
        sampled = sampler.run(
            prompts.requests(step, refill, places), on_progress=on_progress, should_stop=should_stop
        )
        standing |= zip(places, sampled, strict=True)
        constant = [place for place in places if is_constant(standing[place])]
        if refill == max_refills or not constant:
            groups = tuple(standing[place] for place in sorted(standing))
            return StepGroups(groups, tuple(replaced), refill)
        replaced += [standing[place] for place in constant]
        places, refill = constant, refill + 1


def is_constant(group: Group[Trainable]) -> bool:
    """Whether all scored rollouts of a group have the same reward, bit for bit."""
    return len({r.reward for r in group.rollouts if r.reward is not None}) < 2


def sampler_metrics(generator: Generator, workers: Workers) -> Metrics:
    """What a generator that counts says of this step, over all processes; it restarts from 0."""
    stats = getattr(generator, "stats", None)
    if not isinstance(stats, SlotStats):
        return {}
    counts = workers.gather((stats.num_decoded, stats.num_row_ticks, stats.sum_log_mass))
    num_decoded, num_row_ticks, sum_log_mass = map(sum, zip(*counts, strict=True))
    metrics = {"slot_use": proportion(num_decoded, int(num_row_ticks))}
    if sum_log_mass:
        # The ratio is too large by this factor (in nats, per token): what was cut is not in it.
        metrics["log_kept_mass"] = exact(sum_log_mass / max(1, num_decoded))
    stats.restart()
    return metrics
