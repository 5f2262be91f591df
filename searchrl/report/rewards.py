"""Rewards on the page: the weights that a run trained with, and its rollouts under other rewards.

Owns what the page is given for both. The scoring and the comparison are `results.rescoring`; the
page itself only weighs recorded components anew. Caller: `folder`, and `searchrl inspect` for
`score_run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from searchrl.config.sections import AUTO, TaskConfig
from searchrl.errors import SearchRLError
from searchrl.rewards.expression import RewardSchedule
from searchrl.run_folder import Run

if TYPE_CHECKING:
    from searchrl.config import RunConfig
    from searchrl.plugins import Registry
    from searchrl.runs.rescoring import Comparison, Scored

NUM_DISAGREEMENTS = 10
"""Rollouts per phase that two rewards rank most differently."""


class Again(NamedTuple):
    """The rollouts of a run, in their order, under another reward."""

    reward: str
    scored: Sequence[Scored]
    compared: Mapping[str, Comparison]
    """By phase: the recorded reward first, this one second."""


def score_run(
    run: Run, config: RunConfig, registry: Registry, rewards: Sequence[str]
) -> list[Again]:
    """Score all rollouts of a run with each of these expressions.

    Raises:
        ConfigError: as `rescoring.read_recorded` and `rescoring.score_again`.
        RunFolderError: if a row cannot be read.
    """
    from searchrl.runs.rescoring import compare_phases, read_recorded, score_again

    recorded = read_recorded(run.rollouts(), config, registry)
    found = []
    for reward in rewards:
        scored = score_again(recorded, config, registry, reward)
        compared = compare_phases(recorded, scored, NUM_DISAGREEMENTS)
        found.append(Again(reward, scored, compared))
    return found


def describe_weights(run: Run) -> dict[str, Any] | None:
    """The reward of the last steps of a run's first task, as the page weighs with it.

    None if the folder does not tell it.
    """
    schedule = _read_schedule(run.config.tasks[0])
    if schedule is None:
        return None
    expression = schedule.expressions[-1]
    weights = {name: weight for weight, name in expression.terms}
    return {"text": str(expression), "weights": weights, "constant": expression.constant}


def list_rewarded(run: Run) -> list[str]:
    """The components of any reward that the folder tells."""
    schedules = filter(None, map(_read_schedule, run.config.tasks))
    return list(dict.fromkeys(name for schedule in schedules for name in schedule.names))


def _read_schedule(task: TaskConfig) -> RewardSchedule | None:
    if task.reward == AUTO:  # left to the environment, whose plugin is not asked
        return None
    try:
        return RewardSchedule.parse(task.reward)
    except SearchRLError:
        return None


def describe_again(one: Again) -> dict[str, Any]:
    """The comparison of one reward with the recorded one, as the page shows it."""
    phases = {phase: compared.to_dict() for phase, compared in one.compared.items()}
    return {"reward": one.reward, "phases": phases}


def find_unscored(one: Again) -> Iterator[str]:
    """What a reward could not score, and why."""
    reasons = Counter(scored.unscored for scored in one.scored if scored.unscored)
    for reason, count in reasons.most_common(2):
        yield f"{one.reward}: {count} of {len(one.scored)} rollouts have no score: {reason}"
