"""The rehearsal: one micro-batch of an update, forward and backward, on tensors without content.

Owns the counter of live bytes and the model it watches, built by the same code as a real one, but
on torch's meta device. What the prediction of `forecast` adds up from parts is here the peak of the
real program: every tensor that an operation makes is counted until it is freed. Sampling is not
rehearsed: nearly all of it are the keys and values, which are counted to the byte. Nothing is put
on a GPU, and none is needed: the operations are those that a CUDA device would get.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from searchrl.config import RunConfig
from searchrl.engine.memory.footprint import build_on_meta, quiet_meta
from searchrl.engine.model.layout import TokenRow, pack
from searchrl.engine.model.loading import (
    ResolvedModel,
    checkpoint_activations,
    dtype_of,
    lora_settings,
    wants_lora,
)
from searchrl.engine.model.policy import Policy
from searchrl.engine.model.quantization import (
    NF4_BLOCK,
    NF4_SCALE_BLOCK,
    first_line,
    load_bitsandbytes,
)
from searchrl.errors import PolicyError

META = torch.device("meta")
_PROMPT_SHARE = 8
"""A prompt of the rehearsal is this part of the longest rollout: the rest is trained."""


class LiveBytes(TorchDispatchMode):
    """Counts, while it is open, the bytes of all tensors that operations make and nobody freed.

    `peak` is the largest count so far, with what was given to `take`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = 0
        self.peak = 0
        self._held: dict[int, int] = {}

    def take(self, *tensors: Tensor) -> None:
        """Count tensors that are there already; a storage that several share counts once."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            name = storage._cdata
            if name in self._held:
                continue
            self._held[name] = storage.nbytes()
            weakref.finalize(storage, self._give_back, name)
            self.now += self._held[name]
            self.peak = max(self.peak, self.now)

    def _give_back(self, name: int) -> None:
        self.now -= self._held.pop(name)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.take(*(leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)))
        return made


def rehearse_update(
    config: RunConfig, resolved: ResolvedModel, device: torch.device, *, is_offline: bool
) -> int:
    """Bytes at the peak of one update: weights, gradients and all that a micro-batch needs.

    The micro-batch is as long as the configuration lets it be, and the second of its step: the
    sum of the gradients before it is there. Optimiser state and a reference are not counted.

    Args:
        config: of the run.
        resolved: the model.
        device: a CUDA device, which need not be here; decides the dtype.
        is_offline: read nothing but local files.

    Raises:
        PolicyError: if the model cannot be built or run this way; says why.
    """
    model = build_on_meta(config.model, resolved, device, is_offline=is_offline)
    try:
        with quiet_meta():
            policy = _policy(model, config, resolved, device)
            return peak_of_update(policy, config)
    except PolicyError:
        raise
    except Exception as error:  # each architecture has errors of its own
        raise PolicyError(first_line(error)) from error


def _policy(model: Any, config: RunConfig, resolved: ResolvedModel, device: torch.device) -> Policy:
    """The policy that `load_policy` would make, without weights and without a tokenizer."""
    if type(model.get_output_embeddings()) is not nn.Linear:
        raise PolicyError("its head is more than a matrix")
    if config.model.quantize == "nf4":
        _put_in_nf4(model, dtype_of(config.model, device))
    is_lora = wants_lora(config.model, resolved, trainable=True)
    base = model
    if is_lora:
        settings = lora_settings(config.model, resolved, model)
        from peft import get_peft_model

        model = get_peft_model(base, settings)
    if config.model.gradient_checkpointing:
        checkpoint_activations(base, is_lora=is_lora)
    nothing: Any = None  # no text is read or written
    return Policy(
        model=model.eval(),
        tokenizer=nothing,
        renderer=nothing,
        device=META,
        is_lora=is_lora,
        is_tiny=resolved.is_tiny,
        source=resolved.path,
        eos_ids=frozenset(),
        is_checkpointing=config.model.gradient_checkpointing,
        has_plain_head=True,
    )


def _put_in_nf4(model: nn.Module, dtype: torch.dtype) -> None:
    """Replace the matrices by four-bit ones with the tables that bitsandbytes would make."""
    bitsandbytes = load_bitsandbytes("model.quantize 'nf4'", "model.quantize=none")
    head = model.get_output_embeddings()  # type: ignore[operator]
    found = [
        (parent, name, child)
        for parent in list(model.modules())
        for name, child in list(parent.named_children())
        if type(child) is nn.Linear and child is not head
    ]
    for parent, name, child in found:
        num_weights = child.weight.numel()
        num_scales = -(-num_weights // NF4_BLOCK)
        make = bitsandbytes.functional.QuantState
        scales = make(
            torch.empty(-(-num_scales // NF4_SCALE_BLOCK)),
            code=torch.empty(256),
            blocksize=NF4_SCALE_BLOCK,
            dtype=torch.float32,
        )
        state = make(
            torch.empty(num_scales, dtype=torch.uint8),
            shape=child.weight.shape,
            code=torch.empty(16),
            blocksize=NF4_BLOCK,
            quant_type="nf4",
            dtype=dtype,
            offset=torch.empty(()),
            state2=scales,
        )
        layer = bitsandbytes.nn.Linear4bit(
            child.in_features,
            child.out_features,
            bias=child.bias is not None,
            compute_dtype=dtype,
            quant_type="nf4",
            device=META,
        )
        layer.weight = bitsandbytes.nn.Params4bit(
            torch.empty(-(-num_weights // 2), 1, dtype=torch.uint8),
            requires_grad=False,
            quant_state=state,
            blocksize=NF4_BLOCK,
            quant_type="nf4",
            module=layer,
            bnb_quantized=True,
        )
        # Nothing is to be found out from the numbers of the first pass.
        layer.compute_type_is_set = True
        setattr(parent, name, layer)
    model.is_loaded_in_4bit = True  # type: ignore[assignment]  # what peft asks


def peak_of_update(policy: Policy, config: RunConfig) -> int:
    """Bytes at the peak of one update of a policy, on whatever device it is."""
    live = LiveBytes()
    for parameter in policy.model.parameters():
        live.take(parameter)
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            live.take(state.absmax, state.state2.absmax)
    before = [torch.empty_like(parameter) for parameter in policy.parameters]
    live.take(*before)
    with policy.updating(), policy.attending(), live:
        layout = pack(_rollouts(config, policy.max_positions), policy.device)
        result = policy.logps(layout, temperature=1.0, with_entropy=True)
        result.logp_N.sum().backward()
    return live.peak


def _rollouts(config: RunConfig, max_positions: int) -> list[TokenRow]:
    """One prompt and as much of a group behind it as a micro-batch holds, all of it trained."""
    limits = config.rollout
    length = min(limits.max_total_tokens, config.model.max_context, max_positions)
    in_step = limits.prompts_per_step * limits.group_size * length
    num_tokens = max(length, min(config.optim.micro_batch_tokens, in_step))
    num_prompt = max(1, length // _PROMPT_SHARE)
    # What a layout computes ends before the last token, which predicts nothing.
    longest = length - num_prompt - 1
    count = -(-(num_tokens - num_prompt) // longest)
    rest = (num_tokens - num_prompt) // count + 1
    mask = [False] * num_prompt + [True] * rest
    return [TokenRow([0] * len(mask), mask, num_prompt)] * count
