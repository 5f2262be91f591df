"""A device that only pretends: tensors computed on the CPU that say they are on a card.

An operation that mixes the two raises, with its name and line. Every time that the host reads
values of the device is counted by its line. Python backends are an experimental part of torch.

    with pretending():
        searchrl.train(...)  # `device: auto` is the pretended one
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils import backend_registration as registration
from torch.utils._python_dispatch import TorchDispatchMode

MAY_MIX = ("aten.copy_", "aten._to_copy", "aten.to.")
"""Operations that take tensors of the CPU beside those of a card; others take single numbers."""
INDEXING, JOINING = ("aten.index.", "aten.index_put"), ("aten.cat", "aten.stack")
"""The first take indices of the CPU, too, the others no single numbers."""
READING = tuple(
    f"aten.{name}"
    for name in "_local_scalar_dense is_nonzero item equal nonzero masked_select _unique2 "
    "unique_dim unique_consecutive bincount repeat_interleave.Tensor".split()
)
"""Operations whose result, or its size, the host waits for; so does an index of booleans."""

READS: Counter[str] = Counter()
"""By line: how often the host waited for values of the device."""
SENT: Counter[str] = Counter()
"""By line: how often the host sent values to the device."""


class _Backend(registration._DummyBackendModule):
    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.random.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.random.default_generator.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


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

    __repr__ = object.__repr__

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


def _each(one: Any, change: Callable[[Any], Any]) -> Any:
    is_many = isinstance(one, list | tuple)
    return type(one)([_each(part, change) for part in one]) if is_many else change(one)


def _is_near(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and not isinstance(one, Pretended)


def _misplaced(func: Any, args: Any, flat: list[Any]) -> torch.Tensor | None:
    """A tensor of the CPU that a card would not take beside its own."""
    name = str(func)
    if name.startswith(MAY_MIX):
        return None
    if name.startswith(INDEXING):
        flat = [args[0], *args[2:3]]
    wrong = (one for one in flat if _is_near(one) and (one.dim() or name.startswith(JOINING)))
    is_kept_there = _is_near(args[0]) and (func._schema.is_mutable or name.startswith(INDEXING))
    return args[0] if is_kept_there else next(wrong, None)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    flat: list[Any] = []
    _each((args, *kwargs.values()), flat.append)
    far = [one for one in flat if isinstance(one, Pretended)]
    name = str(func)
    if far and (near := _misplaced(func, args, flat)) is not None:
        fault = f"{name} at {where()}: a CPU tensor {(*near.shape,)} beside one of the device"
        print(fault, file=sys.stderr)  # an exception in a backward pass ends the process
        raise RuntimeError(fault)
    goes = next((one.type for one in flat if isinstance(one, torch.device)), None)
    is_mask = name.startswith(INDEXING) and any(one.dtype == torch.bool for one in far[1:])
    if far and (goes == "cpu" or name.startswith(READING) or is_mask):
        READS[f"{name.split('.')[1]} {where()}"] += 1
    if goes == DEVICE.type and any(_is_near(one) and one.dim() for one in flat):
        SENT[where()] += 1

    def plain(one: Any) -> Any:
        if isinstance(one, Pretended):
            return one.inner
        return torch.device("cpu") if isinstance(one, torch.device) else one

    made = func(*_each(args, plain), **{key: _each(kwargs[key], plain) for key in kwargs})
    if not (goes == DEVICE.type or (far and goes != "cpu")):
        return made
    if name.startswith("aten.copy_") and not isinstance(args[0], Pretended):
        READS[f"copy_ {where()}"] += 1
        return args[0]
    is_old = far and func.is_view and not far[0].is_inference()
    known = {id(one.inner): one for one in far}

    def wrapped(one: Any) -> Any:
        if not _is_near(one) or id(one) in known:
            return known.get(id(one), one)
        with torch.inference_mode(torch.is_inference_mode_enabled() and not is_old):
            return Pretended(one)

    return _each(made, wrapped)


@contextmanager
def _in_this_thread() -> Iterator[None]:
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(…, device=…) is made on the CPU first
    try:
        # Its backward passes run here, where the mode is.
        with torch.autograd.set_multithreading_enabled(False), _Mode():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def _run_thread(thread: threading.Thread, run: Any = threading.Thread.run) -> None:
    with _in_this_thread():
        run(thread)


@contextmanager
def pretending() -> Iterator[Counter[str]]:
    """Let `device: auto` be the pretended device; yields the reads of the host by line."""
    READS.clear()
    SENT.clear()
    place = "searchrl.programs.setup.planning.resolve_device"
    device = mock.patch(place, lambda name: torch.device(DEVICE.type))
    with device, mock.patch.object(threading.Thread, "run", _run_thread), _in_this_thread():
        yield READS
