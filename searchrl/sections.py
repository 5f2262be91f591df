"""The sections of the configuration tree: every knob, its default and why.

Owns the pydantic models of the parts; `config.py` puts them together and reads them. Frozen,
unknown keys refused. No plugin, no model and no file is touched here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


AUTO = "auto"
"""A name that is decided when the others are known, and stored decided."""


class Section(BaseModel):
    """A part of the tree: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Named(BaseModel):
    """A plugin by name with its own settings: `env: {name: corpus, corpus: docs/}`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the name, passed to the factory as keyword arguments."""
        return dict(self.model_extra or {})


class RewardStage(Section):
    """One stage of a reward schedule: `expr` holds until step `until_step` (the last: for ever)."""

    expr: str
    until_step: Count | None = None


class TaskConfig(Section):
    """One environment of the run with its own reward, protocol and retriever."""

    env: Named = Named(name="regulations")
    weight: Annotated[float, Field(gt=0)] = 1.0
    reward: str | list[RewardStage] = "format+em"
    metrics: list[str] = Field(default=["format", "em", "searched", "searches", "retrieved"])
    protocol: Named = Named(name=AUTO)
    """`auto`: the one that the environment is registered with, else `think-search-answer`."""
    retriever: Named = Named(name="bm25")

    @field_validator("env", "protocol", "retriever", mode="before")
    @classmethod
    def _name_only(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name == "protocol" and isinstance(value, dict):
            return {"name": AUTO, **value}
        return {"name": value} if isinstance(value, str) else value


class ScratchConfig(Section):
    """Shape of a new Qwen3 model, for `model.name: scratch` (see `sft`)."""

    vocab_size: Count = 2560
    hidden_size: Count = 128
    intermediate_size: Count = 320
    num_layers: Count = 4
    num_heads: Count = 4
    num_kv_heads: Count = 2
    head_dim: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    tokenizer_tasks: Count = 3000
    """Training tasks whose expert episodes the byte-level BPE tokenizer is trained on."""

    @field_validator("num_kv_heads")
    @classmethod
    def _divides_heads(cls, value: int, info: ValidationInfo) -> int:
        num_heads = info.data.get("num_heads", value)
        if num_heads % value:
            raise ValueError(f"must divide num_heads = {num_heads}")
        return value


class ModelConfig(Section):
    """The policy. `name`: a path, a hub id, `tiny` (embedded), `auto` or `scratch` (sft only)."""

    name: Text = "auto"
    scratch: ScratchConfig = ScratchConfig()
    adapter: Literal["auto", "lora", "full"] = "auto"
    """`auto`: LoRA, except full fine-tuning for the embedded tiny model."""
    lora_r: Count = 16
    lora_alpha: Count = 32
    lora_dropout: Fraction = 0.0
    """Acts in sft only: dropout in a pass whose log-probs enter a ratio biases the ratio."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto`: bfloat16 on cuda, float32 elsewhere. float16: LoRA only, with loss scaling."""
    quantize: Literal["none", "nf4"] = "none"
    """`nf4`: the frozen base in four bits (QLoRA), shared by sampler and trainer. LoRA only."""
    gradient_checkpointing: bool = False
    thinking: bool = True
    """Passed to the chat template as `enable_thinking`."""
    instructions: bool = True
    """Put the protocol's instruction into prompts. A small model has no room for it: sft shows it
    what the protocol asks for. An instruction of your own (`protocol.instruction`) always is."""
    max_context: Count = 4096

    @field_validator("quantize")
    @classmethod
    def _stays_frozen(cls, value: str, info: ValidationInfo) -> str:
        if value != "none" and info.data.get("name") == "scratch":
            raise ValueError("a new model has no weights worth quantising; use none")
        if value != "none" and info.data.get("adapter") == "full":
            raise ValueError("quantised weights are frozen; use none, or model.adapter: lora")
        return value


class AlgorithmConfig(Section):
    """The loss. None: the algorithm's own number (`Algorithm.resolve`); its own knobs: `settings`.

    The numbers of its paper differ by orders of magnitude from algorithm to algorithm.
    """

    name: str = "grpo"
    clip_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    clip_high: Annotated[float, Field(gt=0)] | None = None
    """Above `clip_low`: clip-higher (DAPO), which lets unlikely tokens grow faster."""
    beta: Annotated[float, Field(ge=0)] | None = None
    """Weight of the k3 KL to the reference (adapter off, or the starting weights); 0 needs none."""
    reduction: Literal["auto", "token-mean", "sequence-mean", "constant"] = "auto"
    """`auto`: what the algorithm's paper uses."""
    settings: dict[str, Any] = Field(default_factory=dict)


class RolloutConfig(Section):
    """How episodes are sampled. Token limits are per episode, never silently exceeded."""

    group_size: Count = 8
    prompts_per_step: Count = 8
    temperature: Annotated[float, Field(gt=0)] = 1.0
    max_turn_tokens: Count = 500
    max_observation_tokens: Count = 500
    max_total_tokens: Count = 4096
    batch_size: Count = 64
    """Dialogues decoded together by the Hugging Face generator."""
    env_timeout_s: Seconds | None = 60.0
    reward_timeout_s: Seconds | None = 60.0
    max_failure_frac: Fraction = 0.2
    """A program stops when more of the episodes of a step or an evaluation failed than this.

    Failed, not: scored low.
    """


class OptimConfig(Section):
    """AdamW(0.9, 0.999), no weight decay."""

    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    """`adamw8bit`: its state in eight bits (bitsandbytes)."""
    lr: Annotated[float, Field(ge=0)] = 2e-5
    warmup_steps: Annotated[int, Field(ge=0)] = 5
    schedule: Literal["constant", "cosine"] = "constant"
    max_grad_norm: Annotated[float, Field(gt=0)] = 0.5
    micro_batch_tokens: Count = 8192
    """Tokens computed in one forward-backward; never changes the gradient, only memory."""
    epochs: Count = 1
    """Passes over the rollouts of a step. Above 1 the clip range begins to matter."""
    mini_batches: Count = 1
    """Optimiser steps of one pass, on whole groups: each is one update with its own denominator."""


class EngineConfig(Section):
    """What turns prompts into tokens."""

    generator: Named = Named(name="auto")
    """`auto`: `slots`, or `hf` for a model that the slot engine cannot run (it says why)."""
    deterministic: Literal["auto"] | bool = "auto"
    """Take observations in after a fixed number of polls, not when they arrive: what is computed
    together then repeats. `auto`: on the CPU."""

    @field_validator("generator", mode="before")
    @classmethod
    def _name_only(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class SamplingConfig(Section):
    """What may be drawn. For evaluation: in training a cut distribution biases the ratio."""

    top_k: Annotated[int, Field(ge=0)] = 0
    """Only the k most probable tokens; 0: all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the most probable tokens that together have this probability."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Only tokens at least so probable, relative to the most probable one."""
    allow_truncated: bool = False
    """Train on cut samples all the same; the metric `log_kept_mass` says how biased they are."""

    @property
    def is_truncated(self) -> bool:
        """Whether some tokens can never be drawn."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0


class EvalConfig(Section):
    """Greedy evaluation on held-out tasks before, during and after training."""

    num_tasks: Count = 256
    every: Annotated[int, Field(ge=0)] = 10
    """Steps between evaluations during training; 0 only before and after."""
    num_tasks_during: Count = 64
    split: str = "test"
    temperature: Annotated[float, Field(ge=0)] = 0.0
    forced: bool = True
    """Also evaluate with the first turn forced to search: what the policy can do if it looks."""
    batch_size: Count = 128


class SftStage(Section):
    """One stage of supervised cold start: `mix` weighs the env's scripted policies."""

    steps: Count = 500
    mix: dict[str, Weight] = Field(default={"expert": 1.0})
    loss_on: Literal["model", "all"] = "model"
    """`all` also predicts prompt and observations: teaches a model from scratch to read."""
    lr: Annotated[float, Field(gt=0)] = 1e-4
    batch_size: Count = 32
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    schedule: Literal["constant", "cosine"] = "cosine"

    @field_validator("mix")
    @classmethod
    def _is_of_something(cls, value: dict[str, float]) -> dict[str, float]:
        if sum(value.values()) <= 0:
            raise ValueError("at least one scripted policy needs a weight above 0")
        return value


class SftConfig(Section):
    """Supervised cold start from the env's scripted policies or from a JSONL of traces."""

    stages: Annotated[list[SftStage], Field(min_length=1)] = Field(default=[SftStage()])
    traces: str | None = None
    """JSONL of `{"messages" | "prompt" + "turns"}` demonstrations instead of scripted ones."""
    micro_batch_tokens: Count = 16384
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0


class CheckpointConfig(Section):
    """What is kept. Every checkpoint is written to the side and renamed: never half a one."""

    every: Count = 10
    keep_last: Count = 2
    keep_best: bool = True


class LogConfig(Section):
    """What a run writes besides metrics.jsonl and summary.json."""

    trackers: list[Named] = Field(default_factory=list)
    rollouts: bool = True
    """Every trajectory as JSONL."""
    compress: bool = True
    max_rollout_files: Annotated[int, Field(ge=0)] = 0
    """Keep only the newest N files of rollouts; 0 keeps all."""

    @field_validator("trackers", mode="before")
    @classmethod
    def _names_only(cls, value: Any) -> Any:
        items = [value] if isinstance(value, str) else value or []
        if not isinstance(items, list):
            return items
        return [{"name": item} if isinstance(item, str) else item for item in items]
