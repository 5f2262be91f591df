"""The groups of a step: what is sampled, and what of it is replaced.

Owns dynamic sampling (DAPO, arXiv 2503.14476, section 3.2): a group whose reward is constant has
nothing to compare, so its place goes to another prompt. Prompts are those of `PromptStream`, so
the groups of a step are a function of (seed, step) and the weights; nothing is kept between steps.
The metrics of the update and of the sampler are named here as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from searchrl.contracts import Metric
from searchrl.core.group import Group, Trainable
from searchrl.engine.learning.workers import Workers
from searchrl.engine.metrics.metrics import Metrics
from searchrl.engine.rollout.branches import Ask, grow
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.prompts import PromptStream
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.sampling.slot_generator import SlotStats
from searchrl.statistics import exact, finite_figures, mean, proportion


@dataclass(frozen=True, slots=True)
class StepGroups:
    """Groups of a step: one per place to train on, and the groups that were replaced."""

    groups: tuple[Group[Rollout], ...]
    replaced: tuple[Group[Rollout], ...] = ()
    num_refills: int = 0
    """Times that places were filled anew, at most `max_refills`."""
    num_late: int = 0
    """Rollouts that were dropped because they took too long (`rollout.step_timeout_s`)."""

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
    ask: Callable[[Sequence[RolloutRequest], int], Sequence[RolloutRequest]] | None = None,
    branch: Ask | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> StepGroups:
    """Sample a group for each prompt of the step and replace groups of constant reward.

    At most `max_refills` times; a group that is still constant then keeps its place. A group
    without a scored rollout is constant, too. `ask` and `branch` are hooks of the algorithm.
    """
    places: Sequence[int] = range(prompts.prompts_per_step)
    standing: dict[int, Group[Rollout]] = {}
    asked: dict[int, RolloutRequest] = {}
    replaced: list[Group[Rollout]] = []
    refill = num_late = 0
    while True:
        requests: Sequence[RolloutRequest] = prompts.requests(step, refill, places)
        requests = ask(requests, step) if ask is not None and not refill else requests
        sampled = sampler.run(requests, on_progress=on_progress, should_stop=should_stop)
        num_late += sum(len(request.samples) for request in requests)
        num_late -= sum(len(group.rollouts) for group in sampled)
        standing |= zip(places, sampled, strict=True)
        asked |= zip(places, requests, strict=True)
        constant = [place for place in places if is_constant(standing[place])]
        if refill == max_refills or not constant:
            groups = [standing[place] for place in sorted(standing)]
            if branch is not None:
                watched = {"on_progress": on_progress, "should_stop": should_stop}
                groups = grow(sampler, groups, [asked[n] for n in sorted(asked)], branch, **watched)
            return StepGroups(tuple(groups), tuple(replaced), refill, num_late)
        replaced += [standing[place] for place in constant]
        places, refill = constant, refill + 1


def is_constant(group: Group[Trainable]) -> bool:
    """Return True if all scored rollouts of a group have the same reward, bit for bit."""
    return len({r.reward for r in group.rollouts if r.reward is not None}) < 2


def update_metrics(
    stats: Mapping[str, float],
    drawn: StepGroups,
    length_penalty: Callable[[int], float] | None,
    max_refills: int | None,
    max_total_tokens: int,
) -> Metrics:
    """Finite metrics of a step's update (`Learner.train_step`) and of its choice of groups."""
    rest = finite_figures(stats)
    num_tokens, num_groups = int(rest.pop("num_tokens")), int(rest.pop("num_groups"))
    num_dead = rest.pop("num_dead_groups")
    metrics = {"dead_groups": proportion(num_dead, num_groups)} if num_groups else {}
    metrics |= {name: exact(value, max(1, num_tokens)) for name, value in rest.items()}
    if max_refills is not None:
        metrics["refills"] = exact(drawn.num_refills)
    if saved := sum(r.trajectory.num_kept_tokens for r in drawn.rollouts):
        sampled = sum(r.trajectory.num_model_tokens for r in drawn.rollouts)
        metrics["tokens_saved"] = exact(saved / (saved + sampled), saved + sampled)
    gaps = [(turn_surplus(r), r.trajectory.group_id) for r in drawn.rollouts]
    if surplus := [(gap, group_id) for gap, group_id in gaps if gap is not None]:
        values, owners = zip(*surplus, strict=True)
        metrics["turn_surplus"] = mean(values, (-math.inf, math.inf), owners)
    scored = [r.trajectory for r in drawn.rollouts if r.is_scored]
    if length_penalty is not None and scored:
        taken = [length_penalty(trajectory.num_model_tokens) for trajectory in scored]
        group_ids = [trajectory.group_id for trajectory in scored]
        least = min(length_penalty(max_total_tokens), *taken)
        metrics["overlong"] = mean(taken, (least, 0.0), group_ids)
    return metrics


def turn_surplus(rollout: Rollout) -> float | None:
    """Sum of a rollout's turn scores, less its reward; None: nobody scores turns."""
    if rollout.reward is None or rollout.episode_scores is None:
        return None
    return round(math.fsum(rollout.episode_scores) - rollout.reward, 9)


def staleness(drawn: StepGroups, version: int) -> Metric:
    """Age of the sampler's weights, in updates before `version`: mean over the tokens."""
    versions = [one for r in drawn.rollouts for one in r.trajectory.policy_versions if one >= 0]
    return exact(version - sum(versions) / max(1, len(versions)), len(versions))


def sampler_metrics(driver: RolloutDriver, workers: Workers) -> Metrics:
    """Metrics of a driver that counts, over all processes; it restarts from 0."""
    stats = driver.stats
    if not isinstance(stats, SlotStats):
        return {}
    counts = workers.gather((stats.num_decoded, stats.num_row_ticks, stats.sum_log_mass))
    num_decoded, num_row_ticks, sum_log_mass = map(sum, zip(*counts, strict=True))
    metrics: Metrics = {}
    if num_row_ticks:
        metrics["slot_use"] = exact(num_decoded / num_row_ticks, int(num_row_ticks))
    if sum_log_mass:
        # The ratio is too large by this factor (in nats, per token), the mass that was cut.
        metrics["log_kept_mass"] = exact(sum_log_mass / num_decoded)
    stats.restart()
    return metrics
