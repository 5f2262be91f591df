"""Criteria of environments: E1 to E19.

Owns the list; the criteria are in `env_tasks` (what is asked) and `env_episodes` (what is played).
`searchrl check` and authors' tests run them through `testing.conformance`.
"""

from __future__ import annotations

from searchrl.testing.criteria import Criterion
from searchrl.testing.kinds import env_episodes, env_tasks
from searchrl.testing.kinds.env_subject import EnvSubject

__all__ = ["ENV_CRITERIA", "EnvSubject"]

ENV_CRITERIA: tuple[Criterion[EnvSubject], ...] = (
    env_tasks.is_made,
    env_tasks.is_made_quickly,
    env_tasks.satisfies_gymnasium,
    env_tasks.begins,
    env_tasks.describes_tasks,
    env_tasks.repeats_tasks,
    env_tasks.repeats_episodes,
    env_tasks.forgets,
    env_tasks.has_tasks,
    env_tasks.refuses_unknown,
    env_episodes.takes_any_text,
    env_episodes.returns_five,
    env_episodes.ends,
    env_episodes.stays_over,
    env_episodes.keeps_to_budget,
    env_episodes.is_not_fooled,
    env_episodes.pays_right_answers,
    env_episodes.can_travel,
    env_episodes.is_the_same_elsewhere,
)
"""Everything an environment is held to, in order."""
