"""The learner: scored trajectories in, optimiser steps out.

Owns the loop over mini- and micro-batches, the reference pass, gradient clipping, AdamW and its
schedule. The mathematics is `core.loss`; what enters the step is `packing`. Old log-probs are the
sampler's own: the first update is exactly on-policy, needs no extra forward pass, and its ratio is
1 up to rounding (`max_abs_log_ratio` shows it). An algorithm may ask for the
trainer's own (`Ask.TRAINER_LOGPS`). Dropout is off in every pass here. Shapes: N trained tokens of
a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from searchrl.algorithms.record import Algorithm, Ask
from searchrl.config.sections import AlgorithmConfig, OptimConfig
from searchrl.core.columns import LossStats, loss_columns
from searchrl.core.group import Group, Trainable
from searchrl.core.reduction import Reduction
from searchrl.core.trajectory import RowId, TokenColumns
from searchrl.engine.learning import before_update
from searchrl.engine.learning.batch_check import BatchCheck
from searchrl.engine.learning.batches import MicroBatch, micro_batches, mini_batches, without
from searchrl.engine.learning.loss_scale import LossScale
from searchrl.engine.learning.packing import (
    ADVANTAGE,
    LOGP,
    WEIGHT,
    PackedRow,
    pack_step,
)
from searchrl.engine.learning.sampled import SampledTokens, Sums, token_columns
from searchrl.engine.learning.sharing import share_groups
from searchrl.engine.learning.workers import ALONE, Workers
from searchrl.engine.model.optimizers import learning_rate, make_optimizer
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.sharding import shard_state, whole
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import PolicyError

T = TypeVar("T")


class Learned(NamedTuple):
    """Result of a training step.

    `metrics` are means over the trained tokens of all updates (`clip_frac`, `entropy`, …), means
    over updates (`loss`, `grad_norm` before clipping), figures before the first update
    (`SampledTokens.means`), counts of dropped tokens and groups, `skipped_steps` (updates not taken
    because their gradient was not finite) and the learning rate used. Figures that were not
    measured are absent: `kl` without a reference, `grad_norm` without an update, every mean of a
    step without trained tokens, `num_updates` unless a step may have several, `oom_splits` unless
    memory ran out, and `loss_scale` except in float16.
    """

    metrics: dict[str, float]
    tokens: dict[RowId, TokenColumns]
    """Figures of each trained segment at its first update."""


class Learner:
    """Updates a policy.

    Args:
        policy: its trainable parameters are the ones updated.
        algorithm: advantages, loss and reduction.
        settings: clip range, beta, reduction override.
        optim: learning rate, schedule, clipping, updates per step, micro-batch size.
        max_steps: length of the schedule in steps.
        temperature: the sampler's.
        constant: most tokens of a rollout, for the constant reduction and the length penalty.
        seed: decides which groups meet in a mini-batch.
        workers: the processes: each computes the gradient of its groups, and all take the same
            optimiser step.
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
        self.policy = policy
        self.algorithm = algorithm
        self.settings = settings
        self.optim = optim
        self.max_steps = max_steps
        self.temperature = temperature
        self.constant = constant
        self.seed = seed
        self.workers = workers
        self.check = check
        self.loss_settings = algorithm.resolve(settings)
        self.asks_own_logps = Ask.TRAINER_LOGPS in algorithm.asks
        self.step = 0
        self.lr_scale = 1.0
        """Factor on the learning rate; below 1 after a rollback."""
        self.is_halfway = False
        """True if `train_step` changed weights but did not finish: they are not worth keeping."""
        critic = algorithm.critic
        self.critic = None if critic is None else critic.make(policy.hidden_size).to(policy.device)
        """The value head, if the algorithm has one."""
        trained = [*policy.parameters, *algorithm.hooks.parameters()]
        groups: list[dict[str, Any]] = [{"params": trained, "lr": optim.lr}]
        if critic is not None and self.critic is not None:
            groups.append({"params": [*self.critic.parameters()], "lr": critic.lr})
        self._peaks = [group["lr"] for group in groups]
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        self.optimizer = make_optimizer(optim.optimizer, groups)
        self.loss_scale = LossScale(policy.dtype == torch.float16)
        self.micro_batch_tokens = optim.micro_batch_tokens
        """Smaller than the setting once memory has run out."""
        self.packing_fault = policy.find_packing_fault()
        """Why rollouts are padded instead of packed; None: they are packed."""
        if algorithm.needs_reference(settings):
            policy.keep_reference()

    @property
    def max_updates(self) -> int:
        """Most updates that one step can have."""
        return self.optim.epochs * self.optim.mini_batches

    def describe(self) -> str:
        """One line for a person: the updates of a step, and packed or padded rollouts."""
        count = self.max_updates
        updates = f"{count} per step" if count == 1 else f"up to {count} per step"
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
        with self.computing():
            known = before_update.look(self, groups)
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
        self.optimizer.zero_grad(set_to_none=True)
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
        with self.computing():
            old_logps = None
            # With a single update, its log-probs are those before it.
            if self.asks_own_logps and len(updates) > 1:
                old_logps, sums.num_splits = before_update.logps(self, packed.groups)
            for number, batch in enumerate(updates):
                is_first = number * self.optim.epochs < len(updates)
                for share in self._accumulate(batch, old_logps, sums.num_updates, is_first):
                    sums.take_in(share)
                if self.check is not None and not sums.num_updates:
                    self.check.conclude(sums.sampled)
                self._update(sums)
        stats, num_taken = sums.stats, sums.num_updates - sums.num_skipped
        # Only here: a step that was not taken must not move the schedule.
        self.step += num_taken > 0
        self.ensure_same_weights(f"after step {self.step}")
        self.is_halfway = False
        means = stats.means()
        if "loss" in means:
            means["loss"] /= len(updates)
        if stats.num_on:
            means["entropy"] = sums.entropy / stats.num_on
        if num_taken:
            means["grad_norm"] = sums.grad_norm / num_taken
        extra = {}
        if self.max_updates > 1:
            extra["num_updates"] = float(num_taken)
        if sums.num_splits:
            extra["oom_splits"] = float(sums.num_splits)
        if self.loss_scale.is_active:
            extra["loss_scale"] = self.loss_scale.value
        metrics = {
            **means,
            **sums.sampled.means(),
            "num_tokens": stats.num_tokens,
            "num_rollouts": len({r.rollout_id for r in packed.rows if r.columns[WEIGHT].values[0]}),
            "num_unscored": packed.num_unscored,
            "num_groups": packed.num_groups,
            "num_dead_groups": packed.num_dead_groups,
            "num_nonfinite": stats.num_nonfinite + packed.num_nonfinite,
            "skipped_steps": float(sums.num_skipped),
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

    def ensure_same_weights(self, when: str) -> None:
        """Check that all processes hold the same weights; see `Workers.ensure_same`."""
        self.workers.ensure_same(self.parameters, when)

    def _accumulate(
        self,
        groups: Sequence[Group[PackedRow]],
        old_logps: Mapping[RowId, Tensor] | None,
        num_updates: int,
        is_first: bool,
    ) -> list[Sums]:
        """Leave the gradient of one optimiser step in `.grad`, times the loss scale.

        It is the sum over processes, each of which computes a share of the groups. All processes
        learn of a failure before weights change. Each micro-batch has its own `.grad` until the end
        of its backward pass: one that runs out of memory leaves nothing behind. `num_updates` were
        done before in this step; `is_first`: these groups are trained on for the first time.
        Returns the sums of each process.
        """
        totals: list[Tensor | None] = [None] * len(self.parameters)

        def run(batch: MicroBatch) -> Sums:
            self.optimizer.zero_grad(set_to_none=True)
            loss, stats, logp_N, entropy_N = self._forward(batch, old_logps)
            is_on_N = batch[WEIGHT] > 0
            if batch.is_off_N is not None:
                is_on_N = is_on_N & ~batch.is_off_N
            seen = Sums(stats, entropy=float(entropy_N[is_on_N].nansum()))
            if not num_updates:  # the weights are still those that sampled
                if self.check is None:
                    columns = batch[LOGP], batch[ADVANTAGE], batch[WEIGHT]
                    seen.sampled = SampledTokens.measure(logp_N, *columns, is_off_N=batch.is_off_N)
                else:
                    seen.sampled = self.check.look_at(batch, logp_N, self.policy.version)
            (loss * self.loss_scale.value).backward()
            for number, parameter in enumerate(self.parameters):
                total = totals[number]
                if parameter.grad is not None:
                    totals[number] = parameter.grad if total is None else total.add_(parameter.grad)
            if is_first:
                seen.tokens = token_columns(batch, logp_N.detach(), entropy_N, stats)
            return seen

        share = Sums()
        parts, share.num_splits = self.in_micro_batches(groups, run)
        for part in parts:
            share.take_in(part)
        self.workers.sum_gradients(self.parameters, totals)
        shares = self.workers.gather(share)
        for parameter, total in zip(self.parameters, totals, strict=True):
            parameter.grad = total
        return shares

    def in_micro_batches(
        self, groups: Sequence[Group[PackedRow]], run: Callable[[MicroBatch], T]
    ) -> tuple[list[T], int]:
        """Return the results of `run` for this process's rollouts, and how often memory ran out.

        A batch too large for memory is split and run again. All processes gather sharded weights at
        once: a process that is done goes on with an empty batch, and none can split a batch.
        """
        is_packed, is_sharded = self.packing_fault is None, self.policy.is_sharded
        waiting = share_groups(groups, self.workers, is_packed=is_packed)
        made: list[T] = []
        num_splits = 0
        while any(self.workers.gather(bool(waiting))) if is_sharded else waiting:
            size, device = self.micro_batch_tokens, self.policy.device
            batch = next(micro_batches(waiting or groups, size, device, is_packed=is_packed))
            try:
                with self.workers.in_lockstep() if is_sharded else nullcontext():
                    if waiting:
                        made.append(run(batch))
                    else:
                        run(batch.without_weights())
                waiting = without(waiting, set(batch.row_ids))
                continue
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if is_sharded:
                    raise PolicyError(
                        "memory ran out, and micro-batches over sharded weights are not split: "
                        f"lower optim.micro_batch_tokens ({size:,})"
                    ) from error
                if len(batch.rows) == 1:
                    raise PolicyError(
                        f"memory ran out for a single rollout of {len(batch.rows[0].ids):,} "
                        "tokens, which cannot be split: set model.gradient_checkpointing: true, "
                        "lower rollout.max_total_tokens, or train with model.adapter: lora"
                    ) from error
            # Not in the except block: the exception keeps tensors alive.
            self.micro_batch_tokens = max(1, min(size, batch.layout.num_computed) // 2)
            num_splits += 1
            if device.type == "cuda":
                torch.cuda.empty_cache()
        return made, num_splits

    def _forward(
        self, batch: MicroBatch, old_logps: Mapping[RowId, Tensor] | None
    ) -> tuple[Tensor, LossStats, Tensor, Tensor]:
        """(loss, statistics, log-probs, entropies) of one micro-batch over its trained tokens."""
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
            rollout_T=batch.rollout_N,
            entropy_T=entropy_N,
            value_T=value_N,
            is_off_T=batch.is_off_N,
            extra={k: v for k, v in batch.columns.items() if k not in (LOGP, ADVANTAGE, WEIGHT)},
            terms=batch.terms[1:],
        )
        loss, stats = self.algorithm.loss(columns, self.loss_settings)
        return loss, stats, logp_N, entropy_N.detach()

    def _update(self, sums: Sums) -> None:
        """Clip what `_accumulate` left and take the optimiser step, unless it is not finite."""
        self.loss_scale.unscale(self.parameters)
        # Each group by itself: the gradient of a critic may be much larger.
        norm, *others = (
            whole(torch.nn.utils.clip_grad_norm_(group["params"], self.optim.max_grad_norm))
            for group in self.optimizer.param_groups
        )
        is_finite = all(bool(torch.isfinite(one)) for one in (norm, *others))
        if self.algorithm.critic and self.step < self.algorithm.critic.warmup_steps:
            for parameter in self.optimizer.param_groups[0]["params"]:
                parameter.grad = None
        sums.num_updates += 1
        sums.num_skipped += not is_finite
        self.loss_scale.update(is_finite)
        if is_finite:
            sums.grad_norm += float(norm)
            self.is_halfway = True
            self.optimizer.step()
            self.policy.version += 1
        self.optimizer.zero_grad(set_to_none=True)

    def state_dict(self) -> dict[str, Any]:
        """Optimiser, step counter, loss scale and the algorithm's own state (not the weights)."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "version": self.policy.version,
            "loss_scale": self.loss_scale.state_dict(),
            "algorithm": dict(self.algorithm.hooks.state_dict()),
            **({} if self.critic is None else {"critic": self.critic.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` wrote."""
        self.optimizer.load_state_dict(shard_state(self.optimizer, state["optimizer"]))
        self.step = int(state["step"])
        self.policy.version = int(state["version"])
        self.loss_scale.load_state_dict(state["loss_scale"])
        self.algorithm.hooks.load_state_dict(state["algorithm"])
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return True if memory ran out: CUDA has an exception for it, the CPU only a text."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError) or any(
        part in text for part in ("can't allocate memory", "not enough memory")
    )
