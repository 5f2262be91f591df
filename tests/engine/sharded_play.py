"""What processes that share weights out do: run under torchrun by `test_sharding`, and in one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from engine_toy import lora_policy, make_learner, micro_policy, near_items
from workers_play import CPU, LENGTHS, REWARDS

from searchrl.core.group import make_groups
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.sharding import whole

CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": "lora"},
    "checkpointing": {"gradient_checkpointing": True},
    "one group": {"groups": [1], "adapter": "lora"},
    "padded": {"is_packed": False},
    "nothing": {"groups": [4]},
}


def make(
    model: Path, workers: Workers, *, adapter: str = "full", is_packed: bool = True, **more: Any
) -> Learner:
    """A learner whose weights are sharded if it is not alone."""
    policy = (lora_policy if adapter == "lora" else micro_policy)(model, **more)
    policy.keep_reference()
    if workers.size > 1:
        policy.shard()
    optim = {"lr": 1e-3, "max_grad_norm": 0.02, "micro_batch_tokens": 100}
    return make_learner(policy, beta=0.05, workers=workers, is_packed=is_packed, **optim)


def learn(model: Path, workers: Workers, *, groups: Any = range(5), **more: Any) -> dict[str, Any]:
    """One training step: gradient, weights after it and metrics."""
    plain = micro_policy(model)
    items = near_items(plain, [LENGTHS[g] for g in groups], [REWARDS[g] for g in groups])
    learner = make(model, workers, **more)
    gradients: list[torch.Tensor] = []
    step = learner.optimizer.step

    def catch(*args: Any, **kwargs: Any) -> Any:
        grads = [whole(p.grad).flatten() for p in learner.parameters if p.grad is not None]
        gradients.append(torch.cat(grads))
        return step(*args, **kwargs)

    learner.optimizer.step = catch  # type: ignore[method-assign]
    metrics, columns = learner.train_step(make_groups(items))
    weights = learner.policy.trained_weights()
    return {
        "gradient": gradients[-1] if gradients else None,
        "weights": weights,
        "metrics": metrics,
        "columns": {name: tuple(column) for name, column in columns.items()},
    }


def main(model: Path, folder: Path) -> None:
    """Do all of it and save what this process got."""
    torch.set_num_threads(1)
    place = read_place()
    results: dict[str, Any] = {}
    with Workers(place, timeout_s=60).joined(CPU) as workers:
        for name, case in CASES.items():
            results[name] = learn(model, workers, **case)
    torch.save(results, folder / f"{place.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
