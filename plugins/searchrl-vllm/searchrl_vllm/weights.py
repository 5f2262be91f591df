"""Which weights a server has: what travels at a sync, and the label that comes back with tokens.

An adapter is a new folder with a name of its own for every version, so no cache can be of another
one. Full weights are read from a folder, or from the memory of the same GPU. vLLM gives the label
of the weights with every reply: that is how the generator knows the version of its tokens.
"""

from __future__ import annotations

import base64
import itertools
import json
import pickle
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.multiprocessing.reductions import reduce_tensor

from searchrl import GenerationFailure, SearchRLError
from searchrl_vllm.server import MODEL, Server
from searchrl_vllm.wire import ServerHangs, ServerLost

State = Mapping[str, torch.Tensor] | None
"""Whole weights by name, where processes hold them together; None: they are the model's."""
MAX_TRIES = 3
"""Times in a row that a server may be lost."""


class Weights:
    """The weights of one server; `label` names those that it has, `model` is their name there.

    Args:
        server: who gets them.
        folder: where they are written, one folder a version; the server must be able to read it.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.label, self.model = "", MODEL
        self._has: tuple[Any, tuple[int, ...]] | None = None
        # A server may serve several runs, one after the other.
        self._run, self._numbers = secrets.token_hex(4), itertools.count()
        self._written: Path | None = None

    def bring(self, policy: Any) -> int:
        """Have the server sample with a policy's current weights; returns their version.

        Raises:
            PolicyError: the server cannot be started.
            GenerationFailure: it does not take them.
        """
        if policy.is_sharded:
            return self._bring_together(policy)
        wanted = policy, policy.weights_stamp()
        for tries_left in reversed(range(MAX_TRIES)):
            if self._has is not None and self._has[0] is policy and self._has[1] == wanted[1]:
                break
            try:
                self._send(policy)
            except ServerLost as error:
                self.forget(error)
                if not tries_left:
                    raise GenerationFailure(
                        f"vLLM did not take the weights: {error}; {self.server.tail()}"
                    ) from error
            else:
                self._has = wanted
        return int(policy.version)

    def _bring_together(self, policy: Any) -> int:
        """`bring` where processes hold the weights together: the first one has the server.

        All of them call this at the same time, and sample there.
        """
        version = int(policy.version)
        if self._has is not None and self._has[0] is policy and self._has[1] == (version,):
            return version
        state = policy.trained_weights(is_kept=dist.get_rank() == 0)
        told: list[Any] = [None]
        if dist.get_rank() == 0:
            try:
                self._send(policy, state)
                told = [(self.server.address, self.server.key, self.model, self.label)]
            except (ServerLost, SearchRLError) as error:  # nobody may wait for ever
                told = [f"vLLM did not take the weights: {error}; {self.server.tail()}"]
        dist.broadcast_object_list(told)
        if isinstance(told[0], str):
            raise GenerationFailure(told[0])
        address, key, self.model, self.label = told[0]
        self.server.join(address, key)
        self._has = policy, (version,)
        return version

    def forget(self, loss: ServerLost) -> None:
        """The server may have lost them; one that hangs is ended."""
        self._has, self.model = None, MODEL
        if isinstance(loss, ServerHangs):
            self.server.stop()

    def _send(self, policy: Any, state: State = None) -> None:
        number = next(self._numbers)
        if policy.is_lora:
            self.server.ensure(lambda: str(policy.base_model.name_or_path))
            self._send_adapter(policy, number, state)
        elif not self.server.ensure(lambda: str(self._write(policy, number, state))):
            self.server.post("/pause?mode=abort")
            if self.server.launch is not None and self.server.launch.by_ipc:
                send_by_ipc(self.server, policy)
            else:
                folder = str(self._write(policy, number, state))
                reload = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
                self.server.post("/collective_rpc", reload)
            if not self.server.post("/reset_prefix_cache")["success"]:
                raise ServerLost("vLLM did not drop what it had cached under older weights")
            self.server.post("/resume")
        self.label = f"{self._run}.{number}/{policy.version}"
        self.server.post("/update_weight_version", {"new_version": self.label})

    def _send_adapter(self, policy: Any, number: int, state: State) -> None:
        before, name = self.model, f"searchrl-{self._run}-{number}"
        folder = str(self._write(policy, number, state))
        self.server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": folder})
        self.model = name
        if before != MODEL:
            self.server.post("/v1/unload_lora_adapter", {"lora_name": before})

    def _write(self, policy: Any, number: int, state: State) -> Path:
        """Write what is trained into a new folder, whole or not at all; the old one goes."""
        folder = self.folder / f"version-{number}"
        temporary = self.folder / f".{folder.name}"
        shutil.rmtree(temporary, ignore_errors=True)
        if policy.is_lora:
            policy.model.save_pretrained(temporary, state_dict=state)
        else:
            write_model(policy.base_model, policy.tokenizer, temporary, state)
        temporary.rename(folder)
        if self._written is not None:
            shutil.rmtree(self._written, ignore_errors=True)
        self._written = folder
        return folder


def write_model(model: Any, tokenizer: Any, folder: Path, state: State = None) -> None:
    """Write a model as vLLM can read it again and again: with an output matrix of its own.

    On a CPU vLLM keeps a copy of that matrix in another form; where it is tied to the embeddings,
    a reload does not renew the copy.
    """
    model.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)
    if head := tied_head(model, state):
        save_file(head, folder / "output.safetensors", {"format": "pt"})
        settings = json.loads((folder / "config.json").read_text("utf-8"))
        text = json.dumps({**settings, "tie_word_embeddings": False}, indent=2)
        (folder / "config.json").write_text(text, "utf-8")


def tied_head(model: Any, state: State = None) -> dict[str, torch.Tensor]:
    """A copy of the output matrix [V, D] by its name, if it is the embeddings; else nothing.

    `state`: the weights by name, where the model itself has parts of them only.
    """
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if head.weight is not embedding.weight:
        return {}
    names = {id(module): f"{name}.weight" for name, module in model.named_modules()}
    whole = head.weight if state is None else state[names[id(embedding)]]
    return {names[id(head)]: whole.detach().clone()}


def send_by_ipc(server: Server, policy: Any) -> None:
    """vLLM's weight transfer between two processes on one GPU: handles travel, weights do not.

    Handles are pickled, which is why vLLM takes them only from its own run, with the key.
    """
    with suppress(GenerationFailure):  # it is made once for each server
        server.post("/init_weight_transfer_engine", {"init_info": {"packed": False}})
    gpu = str(torch.cuda.get_device_properties(policy.device).uuid)
    whole = {**dict(policy.named_parameters()), **tied_head(policy.base_model)}
    sent = [(name, weight.detach().contiguous()) for name, weight in whole.items()]
    handles = pickle.dumps([{gpu: reduce_tensor(tensor)[1]} for _, tensor in sent])
    update = {
        "names": [name for name, _ in sent],
        "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in sent],
        "shapes": [list(tensor.shape) for _, tensor in sent],
        "ipc_handles_pickled": base64.b64encode(handles).decode(),
    }
    server.post("/start_weight_update")
    server.post("/update_weights", {"update_info": update})
    server.post("/finish_weight_update")
    torch.cuda.ipc_collect()
