"""The learner: scored trajectories in, optimiser steps out.

Owns the updates of a step and their schedule, the loss of a micro-batch, and the figures of the
step. The mathematics is `core.loss`; what enters the step is `packing`, one update is `updater`.
Old log-probs are the sampler's own, unless an algorithm asks for the trainer's: the first update is
on-policy without another pass. Dropout is off in every pass. Shapes: N trained tokens of a
micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from searchrl.algorithms.record import Algorithm, Ask
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.columns import loss_columns
from searchrl.core.group import Group, Trainable, shuffle_rewards
from searchrl.core.reduction import Reduction
from searchrl.core.trajectory import RowId, TokenColumns
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.batches import MicroBatch
from searchrl.engine.learning.packing import ADVANTAGE, LOGP, WEIGHT, pack_step
from searchrl.engine.learning.sampled import SampledTokens, Sums, token_columns
from searchrl.engine.learning.updater import Updater, mini_batches
from searchrl.engine.learning.workers import ALONE, Workers
from searchrl.engine.model.optimizers import learning_rate, make_optimizer
from searchrl.engine.model.policy import Policy
from searchrl.engine.sampling.generator import mix_key


class Learned(NamedTuple):
    """Result of a training step.

    `docs/metrics.toml` says what each of the `metrics` is; those that were not measured are absent,
    as every mean is of a step without trained tokens.
    """

    metrics: dict[str, float]
    tokens: dict[RowId, TokenColumns]
    """Figures of each trained segment at its first update."""


class Learner(Updater):
    """Updates a policy from scored rollouts.

    Args:
        policy: its trainable parameters are the ones updated.
        algorithm: advantages, loss and reduction.
        settings: clip range, beta, reduction override, control.
        optim: learning rate, schedule, clipping, updates per step, micro-batch size.
        max_steps: length of the schedule in steps.
        temperature: the sampler's.
        constant: most tokens of a rollout, for the constant reduction and the length penalty.
        seed: decides which groups meet in a mini-batch, and the order of shuffled rewards.
        workers: the processes; see `Updater`.
        check: checks every step before its first update; None: no check.
    """

    def __init__(
        self,
        policy: Policy,
        algorithm: Algorithm,
        settings: AlgorithmConfig,
        optim: OptimConfig,
        *,
        max_steps: int,
        temperature: float = 1.0,
        constant: int = 4096,
        seed: int = 0,
        workers: Workers = ALONE,
        check: BatchCheck | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.optim = optim
        self.max_steps = max_steps
        self.constant = constant
        self.seed = seed
        self.check = check
        self.is_shuffled = settings.control == "shuffled"
        self.loss_settings = algorithm.resolve(settings)
        self.asks_own_logps = Ask.TRAINER_LOGPS in algorithm.asks
        self.lr_scale = 1.0
        """Factor on the learning rate; below 1 after a rollback."""
        critic = algorithm.critic
        self.critic = None if critic is None else critic.make(policy.hidden_size).to(policy.device)
        """The value head, if the algorithm has one."""
        trained = [*policy.parameters, *algorithm.hooks.parameters()]
        groups: list[dict[str, Any]] = [{"params": trained, "lr": optim.lr}]
        if critic is not None and self.critic is not None:
            groups.append({"params": [*self.critic.parameters()], "lr": critic.lr})
        self._peaks = [group["lr"] for group in groups]
        optimizer = make_optimizer(optim.optimizer, groups)
        super().__init__(policy, optimizer, optim.max_grad_norm, optim.micro_batch_tokens, workers)
        self.temperature = temperature
        self.packing_fault = policy.find_packing_fault()
        if algorithm.needs_reference(settings):
            policy.keep_reference()

    @property
    def max_updates(self) -> int:
        """Most updates that one step can have."""
        return self.optim.epochs * self.optim.mini_batches

    def describe(self) -> str:
        """One line for a person: the updates, packed or padded rollouts, shuffled rewards."""
        count = self.max_updates
        updates = f"{count} per step" if count == 1 else f"up to {count} per step"
        if self.is_shuffled:
            updates += " on rewards that are shuffled within each group (a control)"
        if self.packing_fault is None:
            return f"{updates}, a prompt is computed once per group"
        return f"{updates}, padded: this model cannot share prompts ({self.packing_fault})"

    def train_step(self, groups: Sequence[Group[Trainable]]) -> Learned:
        """Do the optimiser steps on the rollouts of one sampling phase.

        Args:
            groups: all rollouts of the step with their rewards, the same in every process; unscored
                ones are only counted. `core.group.make_groups` makes groups of trajectories
                that have no episode.

        Raises:
            CheckError: if the packed rollouts differ from the sampled ones.
            PolicyError: if memory runs out for a single rollout.
            WorkerError: if another process failed, or holds other weights afterwards.
        """
        if self.is_shuffled:
            place = f"{self.seed}/shuffled/{self.step}"
            groups = [shuffle_rewards(one, Random(f"{place}/{one.id}")) for one in groups]
        with self.computing():
            known = before_update.look(self, groups, self.algorithm, self.critic)
        packed = pack_step(
            groups,
            self.algorithm,
            self.loss_settings,
            constant=self.constant,
            known=known,
            max_updates=self.max_updates,
        )
        if self.check is not None:
            self.check.begin(groups, packed)
        for group, peak in zip(self.optimizer.param_groups, self._peaks, strict=True):
            peak *= self.lr_scale
            group["lr"] = learning_rate(peak, self.step, self.optim, self.max_steps)
        sums = Sums()
        updates = [
            batch
            for epoch in range(self.optim.epochs)
            for batch in mini_batches(
                packed.groups,
                self.optim.mini_batches,
                Reduction(self.loss_settings.reduction),
                constant=self.constant,
                key=mix_key(self.seed, self.step, epoch),
            )
        ]
        norms = []
        with self.computing():
            old_logps = None
            # With a single update, its log-probs are those before it.
            if self.asks_own_logps and len(updates) > 1:
                old_logps, sums.num_splits = before_update.logps(self, packed.groups)
            for number, batch in enumerate(updates):
                is_first = number * self.optim.epochs < len(updates)
                compute = partial(self._loss, old_logps, is_at_start=not number, is_first=is_first)
                mine = Sums()
                parts, mine.num_splits = self.accumulate(batch, compute)
                for part in parts:
                    mine.take_in(part)
                for share in self.workers.gather(mine):
                    sums.take_in(share)
                if self.check is not None and not number:
                    self.check.conclude(sums.sampled)
                critic = self.algorithm.critic
                is_warming_up = critic is not None and self.step < critic.warmup_steps
                norm, is_taken = self.take_step(is_frozen=is_warming_up)
                norms += [norm] * is_taken
        # Only here: a step that was not taken must not move the schedule.
        self.step += bool(norms)
        self.ensure_same_weights(f"after step {self.step}")
        self.is_halfway = False
        stats = sums.stats
        means = stats.means()
        if "loss" in means:
            means["loss"] /= len(updates)
        if stats.num_on:
            means["entropy"] = sums.entropy / stats.num_on
        if norms:
            means["grad_norm"] = sum(norms) / len(norms)
        extra = {}
        if self.max_updates > 1:
            extra["num_updates"] = float(len(norms))
        if sums.num_splits:
            extra["oom_splits"] = float(sums.num_splits)
        if self.loss_scale.is_enabled():
            extra["loss_scale"] = self.loss_scale.get_scale()
        metrics = {
            **means,
            **sums.sampled.means(),
            "num_tokens": stats.num_tokens,
            "num_rollouts": len({r.rollout_id for r in packed.rows if r.columns[WEIGHT].values[0]}),
            "num_unscored": packed.num_unscored,
            "num_groups": packed.num_groups,
            "num_dead_groups": packed.num_dead_groups,
            "num_nonfinite": stats.num_nonfinite + packed.num_nonfinite,
            "skipped_steps": float(len(updates) - len(norms)),
            "lr": self.optimizer.param_groups[0]["lr"],
            **extra,
        }
        return Learned(metrics, sums.tokens)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Put the model in the state in which the log-probs of an update are computed."""
        is_packed = self.packing_fault is None
        with self.policy.updating(), self.policy.attending() if is_packed else nullcontext():
            yield

    def _loss(
        self,
        old_logps: Mapping[RowId, Tensor] | None,
        batch: MicroBatch,
        *,
        is_at_start: bool,
        is_first: bool,
    ) -> tuple[Tensor, Sums]:
        """Return the loss of a micro-batch, and its figures.

        `is_at_start`: the weights are still those that sampled; `is_first`: these groups are
        trained on for the first time.
        """
        output = self.policy.logps(
            batch.layout,
            temperature=self.temperature,
            with_entropy=True,
            entropy_gradient=Ask.ENTROPY in self.algorithm.asks,
        )
        logp_N, entropy_N, value_N = output.logp_N, output.entropy_N, None
        assert entropy_N is not None
        if self.critic is not None and output.hidden_ND is not None and self.algorithm.critic:
            is_shared = self.algorithm.critic.trains_policy
            hidden_ND = output.hidden_ND if is_shared else output.hidden_ND.detach()
            value_N = self.critic(hidden_ND.float())
            value_N = value_N if self.algorithm.critic.per_token else value_N[batch.first_N]
        ref_logp_N = None
        if self.loss_settings.beta > 0:
            with torch.no_grad():
                ref_logp_N = self.policy.logps(
                    batch.layout, temperature=self.temperature, reference=True
                ).logp_N
        old_logp_N = batch[LOGP]
        if old_logps is not None:
            old_logp_N = torch.cat([old_logps[name] for name in batch.row_ids])
        elif self.asks_own_logps:
            old_logp_N = logp_N.detach()
        columns = loss_columns(
            logp_N,
            old_logp_N,
            batch[ADVANTAGE],
            batch[WEIGHT],
            ref_logp_T=ref_logp_N,
            sampler_logp_T=batch[LOGP] if self.asks_own_logps else None,
            segment_T=batch.segment_N,
            num_segments=len(batch.rows),
            rollout_T=batch.rollout_N,
            entropy_T=entropy_N,
            value_T=value_N,
            is_off_T=batch.is_off_N,
            extra={k: v for k, v in batch.columns.items() if k not in (LOGP, ADVANTAGE, WEIGHT)},
            terms=batch.terms[1:],
            host_columns=(logp_N.detach(), entropy_N.detach()),
        )
        loss, stats = self.algorithm.loss(columns, self.loss_settings)
        # Figures are of the CPU. A loss without `reduce` has its columns still on the device.
        logp_N, entropy_N = stats.host_columns or (one.cpu() for one in columns.host_columns)
        batch = batch.host or batch
        is_on_N = batch[WEIGHT] > 0
        if batch.is_off_N is not None:
            is_on_N = is_on_N & ~batch.is_off_N
        sums = Sums(stats, entropy=float(entropy_N[is_on_N].nansum()))
        if is_at_start and self.check is not None:
            sums.sampled = self.check.look_at(batch, logp_N, self.policy.version)
        elif is_at_start:
            given = batch[LOGP], batch[ADVANTAGE], batch[WEIGHT]
            sums.sampled = SampledTokens.measure(logp_N, *given, is_off_N=batch.is_off_N)
        if is_first:
            sums.tokens = token_columns(batch, logp_N, entropy_N, stats)
        return loss, sums

    def state_dict(self) -> dict[str, Any]:
        """As `Updater.state_dict`, and the algorithm's own state."""
        state = {"algorithm": dict(self.algorithm.hooks.state_dict())}
        critic = {} if self.critic is None else {"critic": self.critic.state_dict()}
        return super().state_dict() | state | critic

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        super().load_state_dict(state)
        self.algorithm.hooks.load_state_dict(state["algorithm"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
