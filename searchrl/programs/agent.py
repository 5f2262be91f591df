"""A trained policy as an agent: ask it a question, get its answer and the turns behind it.

Owns `load_agent`, `Agent` and `Answer`. An agent plays one greedy episode per question through the
rollout driver of training, with the configuration of its run. Torch is imported when an agent is
loaded, not by this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig, build_config, merge
from searchrl.config.endpoint import MODEL, endpoint_address
from searchrl.core.episode import Episode, EpisodeTurn, Passage, StopReason
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_driver
from searchrl.engine.rollout.records import turn_record
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.envs.text import TextEnv
from searchrl.errors import ConfigError, EnvironmentFailure
from searchrl.plugins import Registry
from searchrl.run_folder import Run, find_damage
from searchrl.trust.permission import Permission

DEMO_SPLIT = "demo"
"""The split that questions go to, if the environment has it; otherwise the evaluation split."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of an agent. `final_answer` is None if it ended without one (`stop_reason`: why).

    `trace` holds every turn with what it read; `queries` and `passages` are those of all turns.
    """

    question: str
    final_answer: str | None
    trace: tuple[EpisodeTurn, ...]
    queries: tuple[str, ...]
    passages: tuple[Passage, ...]
    stop_reason: StopReason = StopReason.ANSWERED

    @classmethod
    def of(cls, question: str, e: Episode) -> Answer:
        """The answer that a finished episode gave."""
        return cls(question, e.final_answer, e.turns, e.queries, e.passages, e.stop_reason)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON-able values."""
        return {
            "question": self.question,
            "final_answer": self.final_answer,
            "stop_reason": str(self.stop_reason),
            "queries": list(self.queries),
            "passages": [asdict(passage) for passage in self.passages],
            "trace": [turn_record(turn) for turn in self.trace],
        }


@dataclass(slots=True)
class Agent:
    """A policy in its environment. Made by `load_agent`."""

    config: RunConfig
    registry: Registry
    world: TaskWorld
    driver: RolloutDriver
    notes: tuple[str, ...] = ()
    """Sentences about plugins that are not loaded or have changed, damage, and decisions."""
    _num_asked: int = 0

    def ask(self, question: str, **reset_options: Any) -> Answer:
        """Answer a question by searching.

        Args:
            question: any text.
            reset_options: passed to the environment's reset, such as `split="test"`.

        Raises:
            ConfigError: if the question is empty, or the environment takes no questions.
            EnvironmentFailure: if the environment or its retriever failed.
        """
        return Answer.of(question, self.play(question, **reset_options).episode)

    def play(self, question: str, **reset_options: Any) -> Rollout:
        """Like `ask`, but returns the whole rollout: tokens, episode and scores."""
        if not question.strip():
            raise ConfigError('the question is empty; expected text such as "When does it open?"')
        self._num_asked += 1
        request = RolloutRequest(
            group_id=f"ask/{self._num_asked}",
            world=self.world,
            split=DEMO_SPLIT if self.world.has_split(DEMO_SPLIT) else self.config.eval.split,
            index=None,
            rng_keys=(mix_key(self.config.seed, self._num_asked),),
            options={"question": question, **reset_options},
        )
        rollout = self.driver.run([request])[0].rollouts[0]
        episode = rollout.episode
        if episode.failure is not None:
            raise EnvironmentFailure(
                f"the question could not be played: {episode.failure.kind} failure of "
                f"{episode.failure.owner}: {episode.failure.message}"
            )
        if question.strip() not in episode.task.question:
            raise ConfigError(
                f"{self.world.who['env']} takes no questions of its users: "
                "its reset ignores options['question']"
            )
        return rollout

    def close(self) -> None:
        """Close the environments."""
        self.world.close()


def load_agent(
    run_or_model: str | Path,
    *,
    registry: Registry | None = None,
    permission: Permission | None = None,
    **overrides: Any,
) -> Agent:
    """Load the trained agent of a run folder, or a model in the default environment.

    Args:
        run_or_model: a run folder, a checkpoint in one, or whatever `model.name` may be (a folder,
            a hub id, `tiny`).
        registry: loaded plugins; by default the installed ones and those the run used.
        permission: the code that may run, though a run folder names it; by default what `overrides`
            name. `Permission(is_given=True)` allows all, as `--trust` does.
        overrides: config keys that replace the run's: `load_agent(run, retriever="random")`.

    Raises:
        SearchRLError: for missing runs, weights, plugins or devices.

    >>> load_agent("runs/mine").ask("When does the library close?").final_answer  # doctest: +SKIP
    '17:15'
    """
    run = Run.find(run_or_model)
    from searchrl.programs.setup.planning import Plan, plan_run

    if run:
        plan = Plan.of(build_config(run_settings(run, run_or_model), overrides))
    else:
        plan = plan_run(merge(overrides, {"model": {"name": str(run_or_model)}}))
    config = plan.config
    if config.policy != MODEL:
        raise ConfigError(
            f"policy '{config.policy}' cannot answer free questions: only a model that is "
            "loaded here does; use policy: model"
        )
    if registry is None:
        allowed = permission or Permission.of(overrides)
        registry = allowed.load(config, run.path if run else None)
    plan = plan.settled(registry)
    config = plan.config
    world = make_worlds(config, registry)[0]
    policy = plan.load_policy(trainable=False)
    one_at_a_time = config.eval.model_copy(update={"batch_size": 1})
    driver = make_driver(policy, config, registry, one_at_a_time)
    notes = [*registry.news, *(find_damage(run.path) if run else ()), *plan.notes]
    return Agent(config, registry, world, driver, tuple(notes))


def ask_line(run_dir: Path, worlds: Sequence[TaskWorld]) -> dict[str, str]:
    """For a run's summary: how to ask its agent; nothing where its environment takes no questions.

    An agent plays the run's first task; that a `TextEnv` takes questions is known.
    """
    if not isinstance(worlds[0].ask(lambda env: env.unwrapped), TextEnv):
        return {}
    return {"ask": f'searchrl ask {shlex.quote(str(run_dir))} "…"'}


def run_settings(run: Run, weights: str | Path | None = None) -> dict[str, Any]:
    """The settings to use the policy of a run again: those of the run, its weights, no folder.

    `weights` is a checkpoint of the run; by default its newest policy. Whom to ask over HTTP is not
    among them: a run may be a stranger's. ConfigError if its policy was an endpoint.
    """
    settings = run.config.to_dict()
    policy = run.config.policy
    if endpoint_address(policy) is not None:
        raise ConfigError(
            f"the policy of '{run.path}' was {policy}, which has no weights there; ask "
            f"it again with --policy {policy} --model {settings['model']['name']}"
        )
    settings.pop("endpoint")
    return settings | {"init_from": str(weights or run.path), "run_dir": None}
