"""Several processes that train one policy: how they start together, exchange values and end.

Owns the process group of a `torchrun` on one node and its exchanges; those of sharded weights are
torch's own. Each exchange starts with one envelope from every process. It says what is exchanged,
or that its sender failed, so nobody waits for a process that has ended. A single process exchanges
nothing and never touches `torch.distributed`.
"""

from __future__ import annotations

import datetime
import hashlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from searchrl.engine.learning.torchrun import ONLY, Place
from searchrl.engine.model.quantization import first_line
from searchrl.errors import ConfigError, WorkerError

TIMEOUT_S = 1800.0
"""Wait for the others: longer than any process is late after sampling its share."""

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_joined = itertools.count()


class _Envelope(NamedTuple):
    what: str
    error: str | None
    value: Any


class Workers:
    """The processes of one training, seen from one of them.

    Between `joined` and its end every process must do the same exchanges in the same order.
    `rank`, `size` and `is_first` are those of the `Place`.
    """

    def __init__(self, place: Place = ONLY, timeout_s: float = TIMEOUT_S) -> None:
        self.place = place
        self.rank, self.size, self.is_first = place.rank, place.size, place.is_first
        self.timeout_s = timeout_s
        self._has_all_heard = False
        """True once all processes know of the end. After this, nothing is exchanged."""
        self._is_lost = False
        """True once a process is gone or out of step: there is no exchange at the end."""

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[Workers]:
        """Join the others, and leave together; if one ends early, all learn why.

        A failed process leaves last: torchrun kills the others as soon as one is gone, and they
        may be saving.

        Args:
            device: kind of device of the policy; on cuda each process takes its own.

        Raises:
            ConfigError: if there are more processes than GPUs, or several nodes.
            WorkerError: if another process does not come, or failed.
        """
        if self.size == 1:
            yield self
            return
        self._join(device)
        try:
            yield self
            if not self._has_all_heard:
                self.barrier()
        except Exception as error:
            if not self._has_all_heard and not self._is_lost:
                with suppress(WorkerError):
                    self._meet(_Envelope("the end", f"{type(error).__name__}: {error}", None))
                    self._has_all_heard = True
            raise
        except BaseException:
            # Ctrl-C: all agreed on the first one; after a second one no process waits.
            self._is_lost |= not self._has_all_heard
            raise
        finally:
            with suppress(WorkerError):
                if self._has_all_heard and not self._is_lost:
                    self._meet(_Envelope("leave", None, None))
            dist.destroy_process_group()
            self._has_all_heard = self._is_lost = False

    @contextmanager
    def in_lockstep(self) -> Iterator[None]:
        """Guard exchanges that torch makes itself, such as of shards of weights.

        The others wait inside torch and cannot hear of a failure. So a process that fails says why
        and ends, and torchrun ends the others.
        """
        try:
            yield
        except BaseException as error:
            self._is_lost = True
            _LOG.error("process %d of %d failed: %r", self.rank, self.size, error)
            raise

    def gather(self, value: T) -> list[T]:
        """Values of all processes, in order of ranks. They must survive `pickle`."""
        return [value] if self.size == 1 else self._exchange("values", value)

    def barrier(self) -> None:
        """Wait for the others."""
        if self.size > 1:
            self._exchange("a barrier", None)

    def agree_to_stop(self, is_asked: bool) -> bool:
        """Return True if any process was asked to stop. Then all stop and exchange nothing more."""
        if self.size == 1:
            return is_asked
        self._has_all_heard = any(self._exchange("whether to stop", is_asked))
        return self._has_all_heard

    def sum_gradients(self, parameters: Sequence[Tensor], gradients: list[Tensor | None]) -> None:
        """Replace the gradients by their sums over all processes, the same bits everywhere.

        A missing gradient counts as zeros. If no process has it, it stays missing. Gradients of
        sharded parameters are sums already.
        """
        if self.size == 1:
            return
        has = self._exchange("gradients", [gradient is not None for gradient in gradients])
        for number, column in enumerate(zip(*has, strict=True)):
            if any(column) and not isinstance(parameters[number], DTensor):
                if (gradient := gradients[number]) is None:
                    gradient = gradients[number] = torch.zeros_like(parameters[number])
                with self._in_touch():
                    dist.all_reduce(gradient)

    def ensure_same(self, tensors: Sequence[Tensor], when: str) -> None:
        """Check that all processes hold the same weights, bit for bit, where all hold them whole.

        Raises:
            WorkerError: naming the process and `when` (such as `after step 3`).
        """
        if self.size == 1:
            return
        whole = [tensor for tensor in tensors if not isinstance(tensor, DTensor)]
        digests = self._exchange("weights", _digest(whole))
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                # All processes find this and end, so no message is needed.
                self._has_all_heard = True
                raise WorkerError(
                    f"{when}: process {rank} holds other weights than process 0. Every process "
                    "must compute the same update; look for a plugin that draws without a seed or "
                    "keeps state of its own, or train in one process, without torchrun"
                )

    # The process group

    def _join(self, device: torch.device) -> None:
        if self.place.local_size != self.size:  # they share one folder on one disk
            raise ConfigError(
                f"torchrun started {self.size} processes, {self.place.local_size} of them on this "
                "node: training in several processes works on one node; start it with --nnodes 1"
            )
        backend = "gloo"
        if device.type == "cuda":
            count = torch.cuda.device_count()
            if self.size > count:
                raise ConfigError(
                    f"torchrun started {self.size} processes, and torch sees {count} GPUs: use "
                    f"--nproc_per_node {count}"
                )
            torch.cuda.set_device(self.place.local_rank)
            backend = "cpu:gloo,cuda:nccl"
        timeout = datetime.timedelta(seconds=self.timeout_s)
        try:
            store, _, _ = next(rendezvous("env://", self.rank, self.size, timeout=timeout))
            # A new name each time: a program may train several times.
            dist.init_process_group(
                backend,
                store=PrefixStore(f"searchrl/{next(_joined)}", store),
                rank=self.rank,
                world_size=self.size,
                timeout=timeout,
            )
        except (RuntimeError, ValueError) as error:
            raise WorkerError(
                f"process {self.rank} of {self.size} could not meet the others: "
                f"{first_line(error)}. Start all of them with one "
                f"torchrun --nproc_per_node {self.size} -m searchrl train …"
            ) from error

    def _exchange(self, what: str, value: Any) -> list[Any]:
        if self._has_all_heard:
            raise RuntimeError(f"cannot exchange {what}: this process has taken leave")
        envelopes = self._meet(_Envelope(what, None, value))
        for rank, envelope in enumerate(envelopes):
            if envelope.error is not None:
                self._has_all_heard = True
                raise WorkerError(
                    f"process {rank} of {self.size} failed, so all of them end: {envelope.error}"
                )
        for rank, envelope in enumerate(envelopes):
            if envelope.what != what:
                self._has_all_heard = True
                raise WorkerError(
                    f"process {self.rank} exchanges {what}, process {rank} {envelope.what}: they "
                    "are out of step. Every process must take the same course; look for a plugin "
                    "that draws without a seed or keeps state of its own"
                )
        return [envelope.value for envelope in envelopes]

    def _meet(self, envelope: _Envelope) -> list[_Envelope]:
        envelopes: list[Any] = [None] * self.size
        with self._in_touch():
            dist.all_gather_object(envelopes, envelope)
        return envelopes

    @contextmanager
    def _in_touch(self) -> Iterator[None]:
        """Guard an exchange: it fails if another process is gone."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._is_lost = True
            raise WorkerError(
                f"process {self.rank} of {self.size} lost touch with the others: one of them was "
                f"killed (memory?), or did not answer for {self.timeout_s:g} s "
                f"({first_line(error)})"
            ) from error


ALONE = Workers()
"""Workers of a single process."""


def _digest(tensors: Sequence[Tensor]) -> str:
    """A digest of the bytes of tensors."""
    digest = hashlib.blake2b()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
