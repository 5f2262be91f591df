"""The policy: model, tokenizer, adapter, device and reference.

Owns the one forward pass that yields log-probs of chosen tokens, what is trained, and the
reference. It does not sample (generators do) and does not optimise (the learner does). Shapes: B
sequences, T tokens, N chosen tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import logging as hf_logging

from searchrl.engine.model import sharding
from searchrl.engine.model.attention import AttentionPlan, attending
from searchrl.engine.model.head import TokenLogps, find_plain_head, head_logps, logits_logps
from searchrl.engine.model.layout import Layout, TokenRow, pack, pad
from searchrl.engine.model.quantization import num_weights
from searchrl.engine.model.rendering import Renderer
from searchrl.errors import PolicyError, RunFolderError

T = TypeVar("T")

_PROMPT, _SUFFIXES = 5, (6, 4)
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Tokens of the rows with which packing is tried out, and how far their log-probs may be apart."""


@dataclass(slots=True)
class Policy:
    """A loaded policy. `version` counts weight updates; samplers stamp it on what they draw."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    renderer: Renderer
    device: torch.device
    is_lora: bool
    source: str
    eos_ids: frozenset[int]
    version: int = 0
    has_plain_head: bool | None = field(default=None, repr=False)
    """True if logits are a matrix times hidden states; None: not tried yet."""
    is_sharded: bool = False
    """True if each process holds a part of every weight."""
    is_sampled_here: bool = True
    """True if samplers read these weights; else they take `trained_weights`."""
    _is_gathered: bool = False
    _frozen: Any = None

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, in a fixed order."""
        return [p for p in self.model.parameters() if p.requires_grad]

    @property
    def base_model(self) -> Any:
        """The stock causal LM, inside the adapter's wrapper if there is one."""
        return self.model.get_base_model() if self.is_lora else self.model

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the model."""
        dtype: torch.dtype = self.base_model.dtype
        return dtype

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """All parameters by name."""
        named: Iterable[tuple[str, nn.Parameter]] = self.model.named_parameters()
        return named

    @property
    def vocab_size(self) -> int:
        """Tokens the head scores (a model may have more than its tokenizer)."""
        return int(self.base_model.get_output_embeddings().weight.shape[0])

    def weights_stamp(self) -> tuple[int, ...]:
        """Changes whenever a trainable weight changes: torch counts writes."""
        return (self.version, *(p._version for p in self.parameters))

    def hidden(self, ids_BT: Tensor, position_BT: Tensor, plan: AttentionPlan) -> Tensor:
        """Last hidden states [B, T, D], attention done by a plan (inside `attending`)."""
        states: Tensor = self.base_model.get_decoder()(
            input_ids=ids_BT, position_ids=position_BT, use_cache=False, plan=plan
        ).last_hidden_state
        return states

    def head(self, hidden_ND: Tensor) -> Tensor:
        """Logits [N, V] of hidden states."""
        logits: Tensor = self.base_model.get_output_embeddings()(hidden_ND)
        return logits

    @property
    def num_parameters(self) -> tuple[int, int]:
        """(trainable, total) parameter counts; a four-bit byte holds two."""
        total = sum(num_weights(p) for p in self.model.parameters())
        return sum(p.numel() for p in self.parameters), total

    @property
    def max_positions(self) -> int:
        """Longest sequence the model was made for."""
        return int(getattr(self.model.config, "max_position_embeddings", 1 << 30))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Switch dropout and checkpointing off, and back to what was."""
        # One by one: `updating` does not set all of them alike.
        training = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            yield
        finally:
            for module, was_training in training.items():
                module.training = was_training

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Evaluation mode, in which activations are checkpointed all the same.

        Dropout in a pass whose log-probs enter a ratio makes the ratio differ from 1 before any
        update; Hugging Face layers checkpoint only where their own flag says training.
        """
        self.model.eval()
        layers: list[Any] = [
            module
            for module in self.model.modules()
            if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
        ]
        checkpoints = [layer._gradient_checkpointing_func for layer in layers]
        for layer, checkpoint in zip(layers, checkpoints, strict=True):
            layer.training = True
            layer._gradient_checkpointing_func = partial(_checkpoint_in_eval, layer, checkpoint)
        try:
            yield
        finally:
            for layer, checkpoint in zip(layers, checkpoints, strict=True):
                layer._gradient_checkpointing_func = checkpoint
            self.model.eval()

    def find_packing_fault(self) -> str | None:
        """Why plans cannot do this model's attention, or None if they can: it is tried out.

        A short packed row is compared with the same rollouts padded, under the model's own
        attention. That finds what no setting of a model tells: position ids that it ignores, and
        layers other than attention, which would mix rollouts.
        """
        if "sliding_attention" in (getattr(self.base_model.config, "layer_types", None) or ()):
            return "it has sliding-window attention"
        width = _PROMPT + max(_SUFFIXES)
        ids = [number * 7 % self.vocab_size for number in range(len(_SUFFIXES) * width)]
        rollouts = []
        for number, length in enumerate(_SUFFIXES):
            suffix = ids[number * width + _PROMPT :][:length]
            mask = [False] * _PROMPT + [True] * length
            rollouts.append(TokenRow(ids[:_PROMPT] + suffix, mask))
        with torch.no_grad(), self.evaluating():
            padded_N = self.logps(pad(rollouts, self.device)).logp_N
            try:
                with self.attending():
                    packed_N = self.logps(pack(rollouts, self.device)).logp_N
            except (PolicyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
                return f"it does not run packed rows ({error})"
        if not bool(torch.isfinite(padded_N).all()):
            return None  # damaged weights: said where they are sampled from
        gap = float((packed_N - padded_N).abs().max())
        if gap <= _TOLERANCE.get(self.dtype, 0.3):
            return None
        return f"its log-probs differ by {gap:.1e} nats in a packed row"

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden states."""
        return int(self.base_model.get_output_embeddings().weight.shape[1])

    def keep_reference(self) -> None:
        """Freeze a copy of the current weights as the reference (LoRA needs none)."""
        if not self.is_lora and self._frozen is None:
            self._frozen = copy.deepcopy(self.model).eval().requires_grad_(False)

    def shard(self, *, is_sampled_here: bool = True) -> None:
        """Share all weights out between the processes, those of a kept reference, too.

        From then on all of them must make the same passes in the same order.
        """
        for model in (self.base_model, self._frozen):
            if model is not None:
                sharding.shard(model, self.device)
        self.is_sharded, self.is_sampled_here = True, is_sampled_here

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """While a sampler is made or runs: weights that it reads are whole in every process."""
        if not (self.is_sharded and self.is_sampled_here):
            yield
            return
        with sharding.gathered(self.base_model):
            self._is_gathered = True
            try:
                yield
            finally:
                self._is_gathered = False

    def trained_weights(self, *, is_kept: bool = True) -> dict[str, Tensor]:
        """The adapter, or all weights of a policy without one, by name, whole and on the CPU.

        Sharded ones are gathered one by one, so all processes must call this together; where they
        are not kept there is nothing to return. Of tied weights there is one.
        """
        tensors: dict[str, Tensor] = {}
        seen: set[int] = set()
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen and (tensor.requires_grad or not self.is_lora):
                seen.add(id(tensor))
                gathered = sharding.whole(tensor)
                if is_kept:
                    tensors[name] = gathered
        return tensors

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Let plans do the attention of the model, and of the reference if it is a copy."""
        with ExitStack() as stack:
            for model in (self.base_model, self._frozen):
                if model is not None:
                    stack.enter_context(attending(model))
            yield

    def logps(
        self,
        layout: Layout,
        *,
        temperature: float = 1.0,
        with_entropy: bool = False,
        with_best: bool = False,
        reference: bool = False,
        entropy_gradient: bool = False,
    ) -> TokenLogps:
        """Log-probs of the tokens of a layout given everything before them.

        Args:
            layout: one with a plan needs `attending` around this and around the backward pass.
            temperature: logits are divided by it, as the sampler did.
            with_entropy: also return the entropy of each token's distribution.
            with_best: also return whether each token is the most probable one.
            reference: under the reference policy instead of the current one.
            entropy_gradient: let gradients flow through the entropies as well.
        """
        settings: dict[str, Any] = {
            "temperature": temperature,
            "with_entropy": with_entropy,
            "with_best": with_best,
            "entropy_gradient": entropy_gradient,
        }

        def compute() -> TokenLogps:
            rows_ND, head = self._rows(layout, reference)
            if head is None:
                return logits_logps(rows_ND, layout.target_N, **settings)
            figures = head_logps(head, rows_ND, layout.target_N, **settings)
            return figures._replace(hidden_ND=rows_ND)

        return self._make_pass(compute, reference)

    def hidden_states(self, layout: Layout) -> Tensor:
        """The hidden states [N, D] before the tokens that a layout names, which a critic reads.

        Raises:
            PolicyError: the model's logits are not a matrix times them.
        """
        rows_ND, head = self._make_pass(lambda: self._rows(layout, reference=False))
        if head is None:
            raise PolicyError(
                "this model's logits are scaled or capped behind its head, so a critic cannot "
                "read its hidden states; take an algorithm without one, such as grpo"
            )
        return rows_ND

    def _make_pass(self, compute: Callable[[], T], reference: bool = False) -> T:
        """Return `compute()`, made with the weights outside the layers gathered."""
        if not self.is_sharded or self._is_gathered:
            return compute()
        copied = self._frozen if reference else None
        return sharding.make_pass(copied or self.base_model, compute)

    def _rows(self, layout: Layout, reference: bool) -> tuple[Tensor, nn.Linear | None]:
        """Hidden states [N, D] of a layout with the head above them, or logits [N, V] and None."""
        model, scope = self.model, nullcontext()
        if reference:
            model = self._frozen if self._frozen is not None else self.model
            scope = self.model.disable_adapter() if self.is_lora else nullcontext()
        base = model.get_base_model() if self.is_lora else model
        if self.has_plain_head is None:
            with self.evaluating():
                self.has_plain_head = find_plain_head(base, layout.ids_BT[:1, :4])
        options: dict[str, Any] = {"input_ids": layout.ids_BT, "use_cache": False}
        if layout.plan is not None:
            options |= {"position_ids": layout.position_BT, "plan": layout.plan}
        with scope:
            if not self.has_plain_head:
                logits_TV: Tensor = model(**options).logits.flatten(0, 1)
                return logits_TV[layout.row_N], None
            hidden_TD: Tensor = base.get_decoder()(**options).last_hidden_state.flatten(0, 1)
            return hidden_TD[layout.row_N], base.get_output_embeddings()

    @property
    def is_writer(self) -> bool:
        """True in the process that writes: the first of those that share the weights."""
        return not self.is_sharded or dist.get_rank() == 0

    def save(self, folder: Path) -> None:
        """Write model or adapter, and tokenizer, in Hugging Face layout.

        Sharded weights are gathered for it, so all processes must call this.
        """
        hf_logging.disable_progress_bar()  # a scratch model never went through `load_policy`
        state = self.trained_weights(is_kept=self.is_writer) if self.is_sharded else None
        if self.is_writer:
            self.model.save_pretrained(folder, state_dict=state)
            self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, saved: Mapping[str, Tensor]) -> None:
        """Take over the trainable weights that were saved in a folder.

        Raises:
            RunFolderError: some of this model's are not among them, or others are.
            ValueError: one has another shape.
        """
        wanted = {name: p for name, p in self.named_parameters() if p.requires_grad}
        if self.is_lora:
            from peft import get_peft_model_state_dict

            wanted = get_peft_model_state_dict(self.model, state_dict=wanted)
        missing = sorted(wanted.keys() - saved.keys())
        # Frozen ones and buffers may be there, too.
        strange = sorted(saved.keys() - wanted.keys() - self.model.state_dict().keys())
        for verb, names in (("lacks", missing), ("has", strange)):
            if names:
                of = "of" if names is missing else "that are none of"
                raise RunFolderError(
                    f"checkpoint '{folder}' {verb} {len(names)} weights {of} this model, the first "
                    f"'{names[0]}': it was saved from another architecture"
                )
        with torch.no_grad():
            for name, parameter in wanted.items():
                if (shape := saved[name].shape) != parameter.shape:
                    raise ValueError(f"'{name}' is {list(shape)}, not {list(parameter.shape)}")
                parameter.copy_(sharding.shard_like(saved[name], parameter))


def _checkpoint_in_eval(
    layer: nn.Module, checkpoint: Callable[..., Any], function: Callable[..., Any], *args: Any
) -> Any:
    """Checkpoint a layer so that its own code sees evaluation mode in both of its runs.

    A layer may read dropout rates off anything (its attributes, the config) once its flag says
    training, so it is the flag that has to change, not the rates.
    """

    def run(*inputs: Any) -> Any:
        was_training = layer.training
        layer.training = False
        try:
            return function(*inputs)
        finally:
            layer.training = was_training

    return checkpoint(run, *args)
