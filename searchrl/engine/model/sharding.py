"""Weights that several processes hold together: torch's FSDP2 under a stock model.

Owns how a model is sharded, when its weights are whole, and what a shard is. Every layer is
gathered for its own pass; embedding, last norm and head are gathered for the whole pass, because
the head is read outside its module. All processes must make the same passes in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer
from transformers.modeling_layers import GradientCheckpointingLayer

T = TypeVar("T")


def shard(model: Any, device: torch.device) -> None:
    """Leave each process of the process group its part of every weight of a causal LM, in place.

    Adapters inside it are sharded, too. Layers are moved to `device` one by one.
    """
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    layers = [one for one in model.modules() if isinstance(one, GradientCheckpointingLayer)]
    for module in (*layers, model):
        fully_shard(module, mesh=mesh)
        # Weights of a loss carry the denominator of all processes: gradients are sums, not means.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)
    model.make_pass = MethodType(lambda self, compute: compute(), model)
    register_fsdp_forward_method(model, "make_pass")
    with torch.no_grad():
        make_pass(model, lambda: None)  # the first pass decides which module is the root


def make_pass(model: Any, compute: Callable[[], T]) -> T:
    """Return `compute()`, which may read embedding and head of a sharded model, and run layers."""
    result: T = model.make_pass(compute)
    if not torch.is_grad_enabled():
        model.reshard()  # else done behind the backward pass
    return result


@contextmanager
def gathered(model: Any) -> Iterator[None]:
    """All weights of a sharded model are whole in each process; no pass exchanges anything."""
    modules = [one for one in model.modules() if isinstance(one, FSDPModule)]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.set_reshard_after_forward(module is not model, recurse=False)
            module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """A tensor on the CPU; a sharded one is gathered, so all processes must ask for it."""
    tensor = tensor.detach()
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).cpu()


def shard_like(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor as a parameter of its shape is; of a sharded one, this process's part."""
    if not isinstance(parameter, DTensor):
        return tensor
    mesh, whole_one = parameter.device_mesh, tensor.to(parameter.device)
    return distribute_tensor(whole_one, mesh, parameter.placements, src_data_rank=None)


def shard_state(optimizer: Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimiser over whole weights as one over these parameters has it."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    sharded = {}
    for number, parameter in zip(numbers, parameters, strict=True):
        sharded[number] = {
            name: shard_like(value, parameter)
            if isinstance(value, Tensor) and value.shape == parameter.shape
            else value
            for name, value in state["state"].get(number, {}).items()
        }
    return {**state, "state": {number: kept for number, kept in sharded.items() if kept}}


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def agree(is_so: Sequence[bool]) -> list[bool]:
    """For each flag: True in every process?"""
    flags = torch.tensor(is_so, dtype=torch.uint8)
    dist.all_reduce(flags, dist.ReduceOp.MIN)
    return [bool(flag) for flag in flags]
