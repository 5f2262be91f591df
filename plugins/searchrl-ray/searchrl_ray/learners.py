"""The command `ray-train`: Ray Train starts the processes of a training, as torchrun would.

Each process of Ray Train runs `searchrl train` in a process of its own and tells it its place among
the others. What they share, and who writes, is the matter of `searchrl train`.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import click
import ray
import ray.train
from ray._private import ray_constants
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util import get_node_ip_address
from ray.util.placement_group import remove_placement_group

from searchrl import ConfigError, SearchRLError
from searchrl_ray.backend import connect, reserve


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--learners", default=2, show_default=True, help="Processes, all on one node.")
@click.option("--gpu", is_flag=True, help="One GPU for each.")
@click.option("--address", metavar="HOST:PORT", help="The cluster; else RAY_ADDRESS, or none.")
@click.option("--timeout-s", default=300.0, show_default=True, help="How long to wait for room.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ray_train(
    learners: int, gpu: bool, address: str | None, timeout_s: float, arguments: tuple[str, ...]
) -> None:
    """Run `searchrl train ARGUMENTS` in several processes that Ray Train starts.

    \b
    Examples:
      searchrl ray-train --learners 4 --gpu -- --env regulations --model Qwen/Qwen3-4B
    """
    if learners < 1:
        raise ConfigError(f"--learners {learners}: one process at least")
    connect(address, is_heard=True)
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    settings = {"arguments": arguments, "folder": os.getcwd(), "port": port}
    trainer = TorchTrainer(
        learn,
        train_loop_config=settings,
        torch_config=TorchConfig(backend="gloo"),  # not used: the learners have their own group
        scaling_config=ray.train.ScalingConfig(
            num_workers=learners, use_gpu=gpu, placement_strategy="STRICT_PACK"
        ),
    )
    try:
        # Ray Train would wait for ever.
        room = {"CPU": 1.0, "GPU": float(gpu)}
        remove_placement_group(
            reserve(learners, room, "STRICT_PACK", timeout_s, "Lower --learners")
        )
        trainer.fit()
    except ray.train.TrainingFailedError as error:
        raise SearchRLError(
            f"a learner ended early: {error}. Continue with: searchrl ray-train --learners "
            f"{learners} -- --resume RUN"
        ) from error
    finally:
        ray.shutdown()


def learn(settings: dict[str, Any]) -> None:
    """One learner, from its start to its end; RuntimeError if it fails."""
    place = ray.train.get_context()
    environ = {
        "RANK": place.get_world_rank(),
        "WORLD_SIZE": place.get_world_size(),
        "LOCAL_RANK": place.get_local_rank(),
        "LOCAL_WORLD_SIZE": place.get_local_world_size(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": settings["port"],
        # For rollout workers; the second says whether the cluster is on the loopback interface.
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: int(
            get_node_ip_address() != "127.0.0.1"  # type: ignore[no-untyped-call]
        ),
    }
    command = [sys.executable, "-m", "searchrl", "train", *settings["arguments"]]
    ended = subprocess.run(
        command,
        cwd=settings["folder"],
        env=os.environ | {name: str(value) for name, value in environ.items()},
    )
    if ended.returncode:
        raise RuntimeError(f"learner {environ['RANK']} exited with status {ended.returncode}")
