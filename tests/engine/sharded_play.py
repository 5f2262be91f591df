"""What processes that share weights out do: run under torchrun by `test_sharding`, and in one."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from engine_toy import lora_policy, make_learner, micro_policy, near_items
from train_toy import Crash
from workers_play import CPU, LENGTHS, REWARDS

from searchrl.config.sft import SftStage
from searchrl.core.group import make_groups
from searchrl.engine.learning.checkpoint import load_checkpoint, save_checkpoint
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.torchrun import read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.model.sharding import whole
from searchrl.programs.train import train
from searchrl.run_folder import newest_checkpoint

ADAPTERS = ("full", "lora")
CASES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": "lora"},
    "checkpointing": {"gradient_checkpointing": True},
    "fewer groups than processes": {"groups": [1], "adapter": "lora"},
    "padded": {"is_packed": False},
    "nothing to learn": {"groups": [4]},
    "sft": {"is_sft": True, "adapter": "lora"},
}


def learn(
    model: Path, workers: Workers, *, adapter: str = "full", is_packed: bool = True,
    groups: Any = range(5), begin: Path | None = None, end: Path | None = None,
    is_sft: bool = False, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """One step, sharded if not alone: gradient, weights after it, metrics and columns.

    From the checkpoint in `begin`; the one after it is written to `end`.
    """
    lengths, rewards = [LENGTHS[g] for g in groups], [REWARDS[g] for g in groups]
    items = near_items(micro_policy(model), lengths, rewards)
    policy = (lora_policy if adapter == "lora" else micro_policy)(model, **more)
    policy.keep_reference()
    if workers.size > 1:
        policy.shard()
    optim = {"lr": 1e-3, "max_grad_norm": 0.02, "micro_batch_tokens": 100}
    learner: Any
    if is_sft:
        learner = SupervisedLearner(policy, 0.02, 100, workers)
    else:
        learner = make_learner(policy, beta=0.05, workers=workers, is_packed=is_packed, **optim)
    if begin:
        load_checkpoint(newest_checkpoint(begin).folder, policy, learner)
    gradients: list[torch.Tensor] = []
    step = learner.optimizer.step

    def catch() -> Any:
        grads = [whole(p.grad).flatten() for p in learner.parameters if p.grad is not None]
        gradients.append(torch.cat(grads))
        return step()

    learner.optimizer.step = catch
    if is_sft:
        shown = [item.trajectory for item in items[:3]]
        metrics, columns = learner.train_step(shown, SftStage(lr=1e-3), 0), {}
    else:
        metrics, columns = learner.train_step(make_groups(items))
    if end:
        for _ in range(2):  # the second time, its state alone, whoever is there first
            save_checkpoint(end, policy, learner, {"step": 1})
    found = {"gradients": gradients, "weights": policy.trained_weights(), "metrics": metrics}
    return found | {"ratios": {name: column.ratio for name, column in columns.items()}}


def main(model: Path, folder: Path, settings: dict[str, Any]) -> None:
    """Play all of it and save what this process got; three only go on from what two wrote."""
    torch.set_num_threads(1)
    place = read_place()
    results: dict[str, Any] = {}
    with Workers(place, timeout_s=120).joined(CPU) as workers:
        for adapter in ADAPTERS:
            begin = folder / f"{place.size - 1}-{adapter}"
            results[f"go on {adapter}"] = learn(model, workers, adapter=adapter, begin=begin)
            if place.size == 2:
                learn(model, workers, adapter=adapter, end=folder / f"2-{adapter}")
        for name, case in CASES.items() if place.size == 2 else ():
            results[name] = learn(model, workers, **case)
    if place.size == 2:
        try:
            train(settings, observer=Crash(1, "raise"))
        except Exception as error:
            results["crash"] = str(getattr(error, "__notes__", ""))
        train(resume=settings["run_dir"])
    torch.save(results, folder / f"{place.size}.{place.rank}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
