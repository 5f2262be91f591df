"""A device that only pretends: tensors computed on the CPU that say they are on a card.

An operation that mixes the two raises, with its name and line. Every time that the host reads
values of the device is counted by its line. Python backends are an experimental part of torch.

    with pretending():
        searchrl.train(...)  # `device: auto` is the pretended one
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils import backend_registration as registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

MAY_MIX = ("aten.copy_", "aten._to_copy", "aten.to.", "aten.index_put", "aten.index.Tensor")
"""Operations that take tensors of the CPU beside those of a card; `index` takes indices so."""
READING = tuple(
    f"aten.{name}"
    for name in (
        "_local_scalar_dense is_nonzero item equal nonzero masked_select _unique2 unique_dim "
        "unique_consecutive bincount repeat_interleave.Tensor"
    ).split()
)
"""Operations whose result, or its size, the host waits for; so does an index of booleans."""

READS: Counter[str] = Counter()
"""By line: how often the host waited for values of the device."""
SENT: Counter[str] = Counter()
"""By line: how often the host sent values to the device."""


class _Backend(registration._DummyBackendModule):
    """The module `torch.pretend`."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.random.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.random.default_generator.set_state(state)

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0


registration._setup_privateuseone_for_python_backend(rename="pretend", backend_module=_Backend())
DEVICE = torch.device("pretend", 0)


class Pretended(torch.Tensor):
    """A tensor of the device; `inner` has its values."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor, requires_grad: bool = False) -> Pretended:
        made: Pretended = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
            requires_grad=requires_grad,
        )
        return made

    def __init__(self, inner: torch.Tensor, requires_grad: bool = False) -> None:
        self.inner = inner

    def __repr__(self, **_: Any) -> str:
        return f"Pretended({self.inner!r})"

    def tolist(self) -> Any:
        READS[f"tolist {where()}"] += 1
        return self.inner.tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made: Any = Pretended(self.inner.clone())
        is_parameter = isinstance(self, torch.nn.Parameter)
        memo[id(self)] = torch.nn.Parameter(made, self.requires_grad) if is_parameter else made
        return memo[id(self)]

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def where() -> str:
    """The innermost line that is neither torch's nor this file's."""
    for frame in reversed(traceback.extract_stack()):
        if "/torch/" not in frame.filename and frame.filename != __file__:
            return f"{frame.filename.split('/searchrl/')[-1]}:{frame.lineno}"
    return "?"


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    flat, _ = tree_flatten((args, kwargs))
    far = [one for one in flat if isinstance(one, Pretended)]
    near = [
        one
        for one in flat
        if isinstance(one, torch.Tensor) and not isinstance(one, Pretended) and one.dim() > 0
    ]
    name = str(func)
    if far and near and not name.startswith(MAY_MIX):
        shape = tuple(near[0].shape)
        raise RuntimeError(f"{name} at {where()}: a CPU tensor {shape} beside one of the device")
    named = [torch.device(one) for one in flat if isinstance(one, torch.device)]
    if isinstance(kwargs.get("device"), str):
        named.append(torch.device(kwargs["device"]))
    goes = named[0].type if named else None
    is_mask = name.startswith("aten.index") and any(one.dtype == torch.bool for one in far[1:])
    if far and (goes == "cpu" or name.startswith(READING) or is_mask):
        READS[f"{name.split('.')[1]} {where()}"] += 1
    if near and goes == DEVICE.type:
        SENT[where()] += 1

    def plain(one: Any) -> Any:
        if isinstance(one, Pretended):
            return one.inner
        return torch.device("cpu") if isinstance(one, torch.device) else one

    own = tree_map(plain, kwargs)
    if isinstance(own.get("device"), str):
        own["device"] = torch.device("cpu")
    made = func(*tree_map(plain, args), **own)
    if not (goes == DEVICE.type or (far and goes != "cpu")):
        return made
    if name.startswith("aten.copy_") and not isinstance(args[0], Pretended):
        READS[f"copy_ {where()}"] += 1
        return args[0]
    known = {id(one.inner): one for one in far}

    def wrapped(one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or isinstance(one, Pretended):
            return one
        return known[id(one)] if id(one) in known else Pretended(one)

    return tree_map(wrapped, made)


@contextmanager
def pretending() -> Iterator[Counter[str]]:
    """Let `device: auto` be the pretended device; yields the reads of the host by line."""
    READS.clear()
    SENT.clear()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) is made on the CPU first
    try:
        device = mock.patch.multiple(
            "searchrl.programs.setup.planning", resolve_device=lambda name: DEVICE
        )
        # Its backward passes run in this thread, where the mode is.
        with device, torch.autograd.set_multithreading_enabled(False), _Mode():
            yield READS
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
