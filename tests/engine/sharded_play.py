"""What processes that share weights out do: run under torchrun by `test_sharding`, and in one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from engine_toy import lora_policy, make_learner, micro_policy, near_items
from train_toy import Crash
from workers_play import CPU, LENGTHS, REWARDS

from searchrl.core.group import Group, make_groups
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from searchrl.engine.learning.learner import Learner
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.sharding import whole
from searchrl.errors import SearchRLError
from searchrl.programs.train import train
from searchrl.run_folder import newest_checkpoint

CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": "lora"},
    "checkpointing": {"gradient_checkpointing": True},
    "fewer groups than processes": {"groups": [1], "adapter": "lora"},
    "padded": {"is_packed": False},
    "nothing to learn": {"groups": [4]},
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


def make_step(model: Path, groups: Any = range(5)) -> list[Group[Any]]:
    """The same groups in every process."""
    lengths, rewards = [LENGTHS[g] for g in groups], [REWARDS[g] for g in groups]
    return make_groups(near_items(micro_policy(model), lengths, rewards))


def learn(model: Path, workers: Workers, *, groups: Any = range(5), **more: Any) -> dict[str, Any]:
    """One training step: gradient, weights after it, metrics and columns."""
    learner = make(model, workers, **more)
    gradients: list[torch.Tensor] = []
    step = learner.optimizer.step

    def catch(*args: Any, **kwargs: Any) -> Any:
        grads = [whole(p.grad).flatten() for p in learner.parameters if p.grad is not None]
        gradients.append(torch.cat(grads))
        return step(*args, **kwargs)

    learner.optimizer.step = catch  # type: ignore[method-assign]
    metrics, columns = learner.train_step(make_step(model, groups))
    return {
        "gradient": gradients[-1] if gradients else None,
        "weights": learner.policy.trained_weights(),
        "metrics": metrics,
        "columns": {name: tuple(column) for name, column in columns.items()},
    }


def save(model: Path, workers: Workers, folder: Path, adapter: str) -> None:
    """Write a checkpoint after one step."""
    learner = make(model, workers, adapter=adapter)
    learner.train_step(make_step(model))
    save_checkpoint(folder, learner.policy, learner, {"step": 1}, is_writer=workers.is_first)


def go_on(model: Path, workers: Workers, folder: Path, adapter: str) -> dict[str, torch.Tensor]:
    """The weights one step after a checkpoint."""
    learner = make(model, workers, adapter=adapter)
    load_checkpoint(newest_checkpoint(folder).folder, learner.policy, learner)
    learner.train_step(make_step(model))
    return learner.policy.trained_weights()


def run(settings: dict[str, Any]) -> dict[str, str]:
    """A run that the first process breaks off, and that all of them resume."""
    found = {}
    try:
        train(settings, observer=Crash(1, "raise"))
    except (RuntimeError, SearchRLError) as error:
        found["crash"] = "; ".join([str(error), *getattr(error, "__notes__", ())])
    return found | {"run": str(train(resume=settings["run_dir"]).path)}


def main(model: Path, folder: Path, jobs: list[Any]) -> None:
    """Do all of them and save what this process got."""
    torch.set_num_threads(1)
    place = read_place()
    results: dict[str, Any] = {}
    with Workers(place, timeout_s=120).joined(CPU) as workers:
        for name, path, adapter in jobs:
            if name == "learn":
                results |= {case: learn(model, workers, **CASES[case]) for case in CASES}
            elif name == "save":
                save(model, workers, folder / path, adapter)
            elif name == "go on":
                results[f"{path} {adapter}"] = go_on(model, workers, folder / path, adapter)
    for _, _, settings in (job for job in jobs if job[0] == "run"):
        results |= run(settings)
    torch.save(results, folder / f"{place.size} {place.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
