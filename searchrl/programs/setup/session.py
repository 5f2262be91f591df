"""The objects of one run that trains: worlds, policy, learner, and what `train` has beside them.

Owns how they are made from a plan, the two halves of a step (sample, update), and the checks before
the first one. Nothing is evaluated or recorded here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

from searchrl.algorithms.record import Algorithm, Prompt
from searchrl.config.sections import EngineConfig, EvalConfig, RolloutConfig, SamplingConfig
from searchrl.contracts import Backend, TagProtocol
from searchrl.core.episode import Task
from searchrl.core.trajectory import Origin, Probe, Reading
from searchrl.engine.checks import doctor
from searchrl.engine.checks.report import Report
from searchrl.engine.checks.trial import Subject
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.learner import Learned, Learner
from searchrl.engine.learning.sharing import share_driver
from searchrl.engine.learning.step_groups import StepGroups, sample_groups
from searchrl.engine.learning.updater import Updater
from searchrl.engine.learning.workers import ALONE, Workers
from searchrl.engine.memory.forecast import watch_memory
from searchrl.engine.metrics.evaluation import count_tasks
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.tolerance import tolerance_of
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_driver, make_scripted_driver
from searchrl.engine.rollout.prompts import PromptStream
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import build_indexes, make_worlds
from searchrl.engine.sampling.slot_generator import SlotStats
from searchrl.envs.splits import TRAIN
from searchrl.errors import ConfigError
from searchrl.plugins import Registry
from searchrl.programs.setup.planning import Plan
from searchrl.programs.setup.remote import Player, Purpose, RemoteDriver
from searchrl.programs.setup.warnings import (
    ensure_can_draw_ahead,
    ensure_can_learn,
    ensure_whole_distribution,
)
from searchrl.rewards.scorer import Scorer


class Setup:
    """The objects of a run that trains, by any learner; `make` of a subclass makes the rest.

    Environments and workers are closed if that fails. `on_phase` is told how far the indexes are.
    """

    policy: Policy
    learner: Updater
    backend: Backend | None = None

    def __init__(
        self,
        plan: Plan,
        registry: Registry,
        workers: Workers,
        on_note: Callable[[str], None],
        on_phase: Callable[[str, int, int], None] = lambda name, done, total: None,
    ) -> None:
        plan.ensure_weights()
        self.plan = plan
        self.config = plan.config
        self.seed = plan.config.seed
        self.registry = registry
        self.workers = workers
        self.on_note = on_note
        self.on_phase = on_phase
        self.worlds: list[TaskWorld] = make_worlds(plan.config, registry)
        try:
            count_tasks(self.worlds, plan.config.eval)  # before weights are loaded
            self.make()
        except BaseException:
            self.close()
            raise

    def make(self) -> None:
        """Make `policy` and `learner`."""
        raise NotImplementedError

    def is_to_shard(self, algorithm: Algorithm | None = None) -> bool:
        """Return True if processes share all weights out; ConfigError if that cannot be done."""
        config = self.config
        if self.workers.size == 1 or config.engine.sharding != "fsdp2":
            return False
        optimizer = "adamw" if algorithm is None else config.optim.optimizer
        plain = config.model.quantize, optimizer, config.scale.backend
        has_own = algorithm is not None and bool([*algorithm.hooks.parameters()])
        if algorithm is not None and algorithm.critic and config.model.dtype == "float16":
            raise ConfigError(
                "engine.sharding: fsdp2 trains no critic in float16: the gradients of one are "
                "shared out and those of the other are whole; set model.dtype: bfloat16 or "
                "float32, or engine.sharding: ddp"
            )
        if plain != ("none", "adamw", None) or has_own:
            raise ConfigError(
                "engine.sharding: fsdp2 shares out plain weights and moments of a model alone; set "
                "model.quantize: none, optim.optimizer: adamw and scale.backend: null, and take an "
                "algorithm without weights of its own, or engine.sharding: ddp"
            )
        return True

    def make_driver(
        self,
        decoding: RolloutConfig | EvalConfig,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> RolloutDriver:
        """A driver on the policy; `on_note` gets the reason if it is a slower one."""
        config = self.config
        if self.backend is not None:  # its workers have the generator that the config names
            config = config.model_copy(update={"engine": EngineConfig()})
        with self.policy.gathered():
            made = make_driver(self.policy, config, self.registry, decoding, on_note)
        if self.backend is not None:
            purpose: Purpose = "rollout" if isinstance(decoding, RolloutConfig) else "eval"
            made = RemoteDriver(made, self.backend, self.worlds, purpose)
        return share_driver(made, self.workers)

    def close(self) -> None:
        """Close the environments, and end the workers of a backend."""
        if self.backend is not None:
            self.backend.close()
        for world in self.worlds:
            world.close()


class Session(Setup):
    """The objects of `train`."""

    learner: Learner

    def make(self) -> None:
        """Make all that a step needs; ConfigError for settings that do not go together."""
        plan, config, workers = self.plan, self.config, self.workers
        ensure_whole_distribution(config)
        # An algorithm may have weights of its own: the same in every run and every process.
        torch.manual_seed(config.seed)
        algorithm = self.registry.get("algorithm", config.algorithm.name)
        self.algorithm: Algorithm = algorithm.make(**config.algorithm.settings)
        ensure_can_learn(config, self.algorithm, self.worlds)
        ensure_can_draw_ahead(config, self.algorithm, workers)
        build_indexes(self.worlds, self.on_phase)
        rollout = config.rollout
        self.memory = watch_memory(
            *(config, plan.model, plan.device, self.algorithm, workers.size), plan.presets()
        )
        is_sharded = self.is_to_shard(self.algorithm)
        self.policy = plan.load_policy(trainable=True, is_to_shard=is_sharded)
        if is_sharded:
            if self.algorithm.needs_reference(config.algorithm):
                self.policy.keep_reference()
            self.policy.shard(is_sampled_here=config.engine.is_sampled_here)
        self.tolerance = tolerance_of(self.policy.dtype, config.engine.max_mismatch)
        self.learner = Learner(
            self.policy,
            self.algorithm,
            config.algorithm,
            config.optim,
            max_steps=config.max_steps,
            temperature=rollout.temperature,
            constant=rollout.max_total_tokens,
            seed=config.seed,
            workers=workers,
            check=BatchCheck(self.policy.renderer.decode, self.tolerance),
        )
        if config.scale.backend is not None:
            entry = self.registry.get("backend", config.scale.backend.name)
            make = partial(Player, config.to_dict())
            self.backend = entry.make(make, **config.scale.backend.settings)
        self.ahead: Future[StepGroups] | None = None
        """The groups of the next step, where they are drawn while a step is trained."""
        self.added: list[Rollout] = []
        """The demonstrations and replayed episodes of the last update."""
        self.sampler = self.make_driver(rollout, self.on_note)
        limits = replace(self.sampler.limits, step_timeout_s=None)
        scripted = make_scripted_driver(config, self.policy.renderer, limits)
        self.imitator = share_driver(scripted, self.workers)
        self.prompts = PromptStream(
            self.worlds, config.seed, rollout.prompts_per_step, rollout.group_size
        )
        self.curriculum = self.prompts.curriculum
        self.protocols: Sequence[TagProtocol] = [world.protocol for world in self.worlds]
        self.env_names = [world.name for world in self.worlds]
        self.scorers: Sequence[Scorer] = [world.scorer for world in self.worlds]
        self.algorithm.hooks.begin(self)

    def examine(self, *, is_thorough: bool, sampling: SamplingConfig | None = None) -> Report:
        """Run the checks of `searchrl doctor`; `sampling` replaces that of the configuration."""
        subject = Subject(
            self.learner,
            self.sampler,
            self.worlds,
            self.tolerance,
            sampling or self.config.sampling,
            self.config.seed,
            doctor.THOROUGH if is_thorough else doctor.QUICK,
        )
        with self.policy.gathered():
            report = doctor.examine(subject)
        if isinstance(self.sampler.stats, SlotStats):
            self.sampler.stats.restart()  # what was played here is part of no step
        return report

    def sample(self, step: int, **watched: Any) -> StepGroups:
        """Sample the groups of a step (from 1); `watched` goes to `RolloutDriver.run`."""
        for begun in self.curriculum.begins(step - 1):
            self.on_note(begun)
        if self.ahead is not None:
            ahead, self.ahead = self.ahead, None
            return ahead.result()
        with self.policy.gathered():
            self.sampler.sync(self.policy)
            return self._draw(step, **watched)

    def _draw(self, step: int, **watched: Any) -> StepGroups:
        max_refills = self.algorithm.max_refills or 0
        return sample_groups(
            self.sampler,
            self.prompts,
            step,
            max_refills=max_refills,
            ask=self._ask,
            branch=self.algorithm.hooks.branch,
            **watched,
        )

    def update(
        self, drawn: StepGroups, step: int, should_stop: Callable[[], bool] | None = None
    ) -> Learned:
        """Learn from the groups of a step, and from what the algorithm adds to them.

        With `scale.max_staleness` those of the next step are drawn meanwhile, unless `should_stop`.
        """
        with ThreadPoolExecutor(1) as pool:  # it ends when both are done
            if self.config.scale.max_staleness and step < self.config.max_steps:
                self.sampler.sync(self.policy)
                self.ahead = pool.submit(self._draw, step + 1, should_stop=should_stop)
            torch.cuda.empty_cache()  # sampling and updating want memory in different shapes
            groups = self.algorithm.hooks.extend(drawn.groups, step)
            self.added = [
                one
                for group in groups
                for one in group.rollouts
                if isinstance(one, Rollout) and one.trajectory.origin is not Origin.SAMPLED
            ]
            learned = self.learner.train_step(groups)
            torch.cuda.empty_cache()
            return learned

    def _ask(self, requests: Sequence[RolloutRequest], step: int) -> list[RolloutRequest]:
        """The requests of a step as the algorithm would have them."""
        prompts = [
            Prompt(
                one.group_id,
                self.worlds.index(one.world),
                one.difficulty,
                one.index or 0,
                len(one.rng_keys),
            )
            for one in requests
        ]
        return [
            replace(
                request,
                world=self.worlds[prompt.entry],
                difficulty=prompt.level,
                index=prompt.index,
                rng_keys=request.rng_keys[: prompt.num_rollouts],
            )
            for request, prompt in zip(
                requests, self.algorithm.hooks.ask(prompts, step), strict=True
            )
        ]

    def tasks(self, indices: Sequence[int] | None = None) -> Iterator[tuple[int, int, Task]]:
        """See `Trainer`."""
        for entry, world in enumerate(self.worlds):
            total = world.num_tasks(TRAIN)
            known = range(total) if indices is None else (n for n in indices if n < total)
            for index in known:
                if (task := world.look_at(TRAIN, index)) is not None:
                    yield entry, index, task

    def imitate(self, entry: int, index: int, turns: Sequence[str]) -> Rollout:
        """See `Trainer`: the turns go through the driver of scripts."""
        left = iter(turns)
        expert = SimpleNamespace(act=lambda observation: next(left))
        name, keys = f"demonstration/{entry}/{index}", (self.seed,)
        world = self.worlds[entry]
        request = RolloutRequest(name, world, TRAIN, index, keys, script=lambda *_: expert)
        (group,) = self.imitator.run([request])
        return group.rollouts[0]

    def read(self, probes: Sequence[Probe]) -> list[Reading]:
        """See `Trainer`: forward passes."""
        with self.learner.computing():
            return before_update.read(self.learner, probes)


def examine_plan(plan: Plan, registry: Registry) -> Report:
    """Make the objects of a training run, check them and give everything back."""
    # A cut distribution, which no run would begin with, is one of the findings here.
    sampling = plan.config.sampling
    allowed = {"sampling": sampling.model_copy(update={"allow_truncated": True})}
    plan = replace(plan, config=plan.config.model_copy(update=allowed))
    with closing(Session(plan, registry, ALONE, lambda text: None)) as session:
        return session.examine(is_thorough=True, sampling=sampling)
