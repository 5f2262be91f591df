"""What one process does and what two do together: the same functions for both.

Run under torchrun, this file plays every scenario and leaves what each process got in a folder;
`test_workers` calls the same functions in one process and compares.
"""

import json
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from engine_toy import LIMITS, TOY_PLUGIN, make_learner, micro_policy, near_items

from searchrl.algorithms.builtin import make_grpo, make_tis
from searchrl.config import build_config
from searchrl.config.sft import SftStage
from searchrl.core.group import make_groups
from searchrl.engine.learning.sharing import share_driver
from searchrl.engine.learning.supervised import SupervisedLearner
from searchrl.engine.learning.torchrun import Place, read_place
from searchrl.engine.learning.workers import Workers
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.rollout import Interrupted, RolloutDriver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import Sampling
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.errors import SearchRLError
from searchrl.plugins import load_plugins

CPU = torch.device("cpu")
LOADING = threading.Lock()
"""One model and one plugin are loaded at a time."""

LENGTHS = [[5, 40, 11], [3, 3, 60], [27, 8, 1], [30, 12, 6], [9, 9, 9]]
REWARDS: list[list[float | None]] = [
    [0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.2, None, 0.0], [1.0, 1.0, 1.0], [None, None, None]
]  # fmt: skip
"""Groups of a step: the fourth is dead, of the last nothing was scored."""


def learn(
    model: Path,
    workers: Workers,
    *,
    device: torch.device = CPU,
    dtype: str = "float32",
    groups: Sequence[int] = range(5),
    algorithm: str = "grpo",
    is_packed: bool = True,
    **optim: Any,
) -> dict[str, Any]:
    """One training step: the last gradient, the weights after, metrics and columns."""
    with LOADING:
        policy = micro_policy(model, device=device)
    policy.model.to(getattr(torch, dtype))
    items = near_items(policy, [LENGTHS[g] for g in groups], [REWARDS[g] for g in groups])
    learner: Any
    if algorithm == "sft":
        learner = SupervisedLearner(policy, 1e9, 200, workers)
    else:
        learner = make_learner(
            policy,
            {"grpo": make_grpo, "tis": make_tis}[algorithm](),
            beta=0.05,
            workers=workers,
            is_packed=is_packed,
            **{"lr": 1e-3, "max_grad_norm": 1e9, "micro_batch_tokens": 200} | optim,
        )
    gradients: list[torch.Tensor] = []
    step = learner.optimizer.step

    def catch(*args: Any, **kwargs: Any) -> Any:
        grads = [p.grad for p in policy.parameters if p.grad is not None]
        gradients.append(torch.cat([grad.flatten() for grad in grads]).clone())
        return step(*args, **kwargs)

    learner.optimizer.step = catch
    if algorithm == "sft":
        shown = [item.trajectory for item in items]
        metrics, columns = learner.train_step(shown, SftStage(lr=1e-3), 0), {}
    else:
        metrics, columns = learner.train_step(make_groups(items))
    return {
        "gradient": gradients[-1].cpu() if gradients else None,
        "weights": torch.cat([p.detach().flatten() for p in policy.parameters]).cpu(),
        "metrics": metrics,
        "columns": {name: tuple(column) for name, column in columns.items()},
    }


LEARNING: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"is_packed": False},
    "float64": {"dtype": "float64"},
    "more processes than groups": {"groups": [1]},
    "nothing to learn": {"groups": [4]},
    "sft": {"algorithm": "sft"},
    "several updates": {"epochs": 2, "mini_batches": 2, "algorithm": "tis", "dtype": "float64"},
}


def sample(model: Path, workers: Workers, **more: Any) -> list[dict[str, Any]]:
    """Three prompts of the toy world: two for one process, one for the other."""
    config = build_config(
        {
            "env": {"name": "toy", **more.pop("env", {})},
            "reward": "parity",
            "protocol": {"name": "short-stops", "instruction": ""},
            "plugins": [str(TOY_PLUGIN)],
        }
    )
    with LOADING:
        world = make_worlds(config, load_plugins(config.plugins, strict=True))[0]
        policy = micro_policy(model, trainable=False)
    generator = SlotGenerator(policy, Sampling(1.0), num_slots=4, max_length=300)
    limits = replace(LIMITS, max_turn_tokens=12, max_total_tokens=300)
    driver = share_driver(RolloutDriver(generator, policy.renderer, limits), workers)
    requests = [
        RolloutRequest(f"prompt{i}", world, "train", i, tuple(100 * i + k for k in range(3)))
        for i in range(3)
    ]
    groups = driver.run(requests, **more)
    assert all(r.world is world for group in groups for r in group.rollouts)
    return [
        {
            "group": group.id,
            "id": r.trajectory.rollout_id,
            "ids": r.trajectory.ids,
            "logps": r.trajectory.sampler_logps,
            "episode": r.episode,
            "scored": r.scored,
            "options": dict(r.reset_options),
        }
        for group in groups
        for r in group.rollouts
    ]


def hearing(function: Callable[[Workers], Any], place: Place) -> str:
    """What a process raises, within a meeting of its own."""
    workers = Workers(place, timeout_s=60)
    try:
        with workers.joined(CPU):
            return f"returned {function(workers)!r}"[:200]
    except (SearchRLError, ZeroDivisionError, Interrupted) as error:
        return f"{type(error).__name__}: {error}"


def _fails_before_gradients(workers: Workers) -> None:
    if workers.rank == 1:
        raise ZeroDivisionError("the plugin is broken")
    workers.sum_gradients([torch.zeros(2)], [torch.zeros(2)])


def _has_other_weights(workers: Workers) -> None:
    weights = [torch.ones(3), torch.ones(5)]
    workers.ensure_same(weights, "at the start")
    weights[1][4] += workers.rank * 2**-23  # one step up, one down: the sum of their bits stays
    weights[1][2] -= workers.rank * 2**-24
    workers.ensure_same(weights, "after step 3")


def _is_out_of_step(workers: Workers) -> None:
    workers.gather(1) if workers.is_first else workers.barrier()


def _sums(workers: Workers) -> list[Any]:
    parameters = [torch.zeros(3), torch.zeros(2, 2), torch.zeros(1)]
    own = torch.full((3,), 1.0 + workers.rank)
    gradients = [own, torch.ones(2, 2) if workers.rank else None, None]
    workers.sum_gradients(parameters, gradients)
    return [None if gradient is None else gradient.tolist() for gradient in gradients]


def _stops(workers: Workers) -> bool:
    return workers.agree_to_stop(False) or workers.agree_to_stop(workers.rank == 1)


ENDINGS: dict[str, Callable[[Workers], Any]] = {
    "fails before gradients": _fails_before_gradients,
    "other weights": _has_other_weights,
    "out of step": _is_out_of_step,
    "sums": _sums,
    "stops": _stops,
}


def play(model: Path, place: Place, name: str) -> Any:
    """What a process at this place gets of one thing that two do together, in a new meeting."""
    if name in ENDINGS:
        return hearing(ENDINGS[name], place)
    if name == "interrupted":
        ask = {"should_stop": lambda: place.rank == 1}
        return hearing(lambda workers: sample(model, workers, **ask), place)
    with Workers(place, timeout_s=60).joined(CPU) as workers:
        if name == "sample":
            return sample(model, workers)
        return learn(model, workers, **LEARNING[name])


def learn_there(model: Path, folder: Path, device: str) -> None:
    """Learn on one device that both processes have, and save what this process got."""
    # Over gloo, as on a CPU: NCCL refuses two processes on one card.
    with Workers(read_place(), timeout_s=60).joined(CPU) as workers:
        learned = learn(model, workers, device=torch.device(device), dtype="float64")
    torch.save(learned, folder / f"{read_place().rank}.pt")


def main(model: Path, folder: Path, run: dict[str, Any]) -> None:
    """Play all of it and save what this process got."""
    from train_toy import Crash

    from searchrl.programs.train import train

    torch.set_num_threads(1)
    names = (*LEARNING, *ENDINGS, "sample", "interrupted")
    results = {name: play(model, read_place(), name) for name in names}
    try:
        train(run, observer=Crash(1, "raise"))
    except (RuntimeError, SearchRLError) as error:
        results["crash"] = f"{type(error).__name__}: {error}"
    results["run"] = str(train(resume=run["run_dir"]).path)
    torch.save(results, folder / f"{read_place().rank}.pt")


if __name__ == "__main__":
    given = json.loads(sys.argv[3])
    (learn_there if isinstance(given, str) else main)(Path(sys.argv[1]), Path(sys.argv[2]), given)
