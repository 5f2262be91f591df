"""The generator: dialogues as ids, turns from a vLLM server, stops found by our own automaton.

vLLM gets the stop strings only to know where to pause, so that no token is sampled for nothing;
whether and where a turn ended is read from its ids by the automaton of the other generators. If
vLLM paused too early, the turn goes on with another request; what came too late is dropped.

A request that a crash breaks off is asked again, with the same seed; tokens are taken over with the
reply alone, so nothing is lost and nothing counts twice.
"""

from __future__ import annotations

import itertools
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from searchrl import ConfigError, GenerationFailure, PolicyError
from searchrl.algorithms import TurnStop
from searchrl.api_client import read_key
from searchrl.contracts import Address, Command
from searchrl.engine.sampling import (
    Dialogues,
    FinishedTurn,
    Handle,
    OpenSequence,
    Sampling,
    StopTable,
    mix_key,
    vocabulary_bytes,
)
from searchrl_vllm.server import KEY, Launch, Server
from searchrl_vllm.weights import MAX_TRIES, Weights
from searchrl_vllm.wire import Reply, ServerLost, read_reply, request_body

_SERVERS: dict[object, Weights] = {}
"""One server for all generators of a process that want the same."""


def make_vllm(
    policy: Any,
    sampling: Sampling,
    *,
    num_slots: int = 64,
    max_length: int = 4096,
    python: Command = "",
    address: Address = "",
    args: Sequence[Command] = (),
    timeout_s: Annotated[float, Field(gt=0)] = 1800.0,
) -> VLLMGenerator:
    """A vLLM server in a process and an environment of its own.

    Args:
        python: the Python of an environment with vLLM: a server is started with it.
        address: of a server that `searchrl serve-generator` started, instead.
        args: more words for the command line of vLLM, such as `--gpu-memory-utilization=0.4`.
        timeout_s: seconds until a request that is not answered counts as lost.
    """
    if bool(python) == bool(address):
        raise ConfigError(
            "generator 'vllm' needs one of engine.generator.python=/path/to/venv/bin/python (of an "
            "environment with vLLM) and engine.generator.address=http://HOST:PORT"
        )
    if address and args:
        raise ConfigError("engine.generator.args are for a server that is started here, not there")
    if sampling.is_truncated:
        raise PolicyError(
            "generator 'vllm' samples from the whole distribution: its log-probs would be those of "
            "what top_k, top_p or min_p leave. Take sampling.top_k=0, top_p=1 and min_p=0, or "
            "--set engine.generator=auto"
        )
    if getattr(policy.base_model.config, "quantization_config", None):
        raise PolicyError("generator 'vllm' cannot sample from model.quantize: take none")
    launch = None
    if python:
        launch = Launch(
            python,
            str(policy.dtype).removeprefix("torch."),
            max_length,
            policy.model.peft_config["default"].r if policy.is_lora else 0,
            not policy.is_lora and policy.device.type == "cuda" and not policy.is_sharded,
            tuple(args),
            policy.device.type == "cpu",
        )
    key = launch, address, policy.base_model.name_or_path, timeout_s
    if key not in _SERVERS:
        folder = Path(tempfile.mkdtemp(prefix="searchrl-vllm-"))
        log = folder.with_suffix(".log")  # it stays
        server = Server(launch, address, read_key(KEY) or secrets.token_urlsafe(24), log, timeout_s)
        _SERVERS[key] = Weights(server, folder)
        weakref.finalize(server, shutil.rmtree, folder, ignore_errors=True)
    return VLLMGenerator(policy, sampling, _SERVERS[key], num_slots)


class VLLMGenerator(Dialogues):
    """See `Generator`; at most `num_slots` turns are asked for at a time."""

    def __init__(self, policy: Any, sampling: Sampling, weights: Weights, num_slots: int) -> None:
        super().__init__()
        self.policy, self.sampling = policy, sampling
        self.version = int(policy.version)
        self._weights, self._num_slots = weights, num_slots
        self._vocabulary = vocabulary_bytes(policy.tokenizer, policy.vocab_size)
        self._tables: dict[tuple[str, ...], StopTable] = {}
        self._asked: dict[Handle, Future[Any]] = {}
        self._num_losses = 0

    def poll(self) -> list[FinishedTurn]:
        """See `Generator.poll`: waits until at least one turn is finished.

        Raises:
            GenerationFailure: the server is lost again and again, or refuses.
        """
        if not self._asked:
            self.version = self._weights.bring(self.policy)
        while True:
            self._ask_waiting()
            if not self._asked:
                return []
            wait(self._asked.values(), return_when=FIRST_COMPLETED)
            turns, loss = [], None
            # In the order of their dialogues, whichever came first.
            for handle in sorted(h for h, future in self._asked.items() if future.done()):
                try:
                    turn = self._take(self._sequences[handle], self._asked.pop(handle))
                except ServerLost as error:
                    loss = error
                else:
                    turns += [turn] if turn else []
            if loss is not None:
                self._recover(loss)
            if turns:
                self._num_losses = 0
                return turns

    def close(self, handle: Handle) -> None:
        """See `Generator.close`; a request under way is broken off."""
        super().close(handle)
        if future := self._asked.pop(handle, None):
            future.cancel()

    def sync(self, policy: Any) -> int:
        """Send the policy's current weights to the server; returns their version."""
        wait(self._asked.values())
        self.policy, self.version = policy, self._weights.bring(policy)
        return self.version

    def _ask_waiting(self) -> None:
        """Ask for the turns that are next, in order, as many as may be under way."""
        waiting = [
            s for s in self._sequences.values() if s.is_asked and s.handle not in self._asked
        ]
        for sequence in waiting[: max(0, self._num_slots - len(self._asked))]:
            # Of what is before the token, so that it is the same however a turn was cut up.
            seed = mix_key(sequence.rng_key, len(sequence.ids)) >> 1
            body = request_body(
                self._weights.model,
                sequence.ids,
                stops=sequence.stops,
                eos_ids=sorted(self.policy.eos_ids),
                max_tokens=sequence.max_tokens - len(sequence.new_ids),
                temperature=self.sampling.temperature,
                seed=seed,
            )
            server = self._weights.server
            self._asked[sequence.handle] = server.ask("POST", "/inference/v1/generate", body)

    def _take(self, sequence: OpenSequence, future: Future[Any]) -> FinishedTurn | None:
        """Append what a reply holds; the turn if it has ended with that."""
        reply: Reply = read_reply(future.result())
        if reply.labels != {self._weights.label}:
            raise ServerLost(
                f"vLLM sampled with the weights {sorted(reply.labels)}, not with those that this "
                f"run sent ({self._weights.label}); it was started again, or another run uses it"
            )
        ids = [*sequence.new_ids, *reply.ids]
        reason, length = self._find_end(ids, sequence)
        new = zip(reply.ids, reply.logps, strict=True)
        for token, logp in itertools.islice(new, length - len(sequence.new_ids)):
            sequence.append(token, logp)
        return None if reason is None else sequence.finish(reason, self.version)

    def _find_end(self, ids: list[int], sequence: OpenSequence) -> tuple[TurnStop | None, int]:
        """Why a turn ends with these ids (None: it goes on), and how many of them are its own."""
        if sequence.stops not in self._tables:
            self._tables[sequence.stops] = StopTable(self._vocabulary, sequence.stops)
        eos = next((n + 1 for n, token in enumerate(ids) if token in self.policy.eos_ids), None)
        stop = self._tables[sequence.stops].find_end(ids if eos is None else ids[: eos - 1])
        if stop is not None:
            return TurnStop.STOP_STRING, stop
        if eos is not None:
            return TurnStop.EOS, eos
        return (TurnStop.MAX_TOKENS if len(ids) >= sequence.max_tokens else None), len(ids)

    def _recover(self, loss: ServerLost) -> None:
        """Have a server with the weights again; what was not answered is asked again."""
        self._num_losses += 1
        if self._num_losses > MAX_TRIES or self.policy.is_sharded:
            raise GenerationFailure(f"{loss}; {self._weights.server.tail()}") from loss
        wait(self._asked.values())
        self._asked = {}  # all of them: the weights get a new label; seeds are the same
        self._weights.forget(loss)
        self.version = self._weights.bring(self.policy)
