"""The sections of the configuration tree: every knob, its default and why.

The text below a field is its reason in `searchrl config` and on the site's page of settings.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from searchrl.config.curriculum import checked_stages
from searchrl.contracts.settings import Weights


def _no_bool(value: Any) -> Any:
    """`lr: true` is a slip, and Python would take it for 1."""
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


_NUMBER = re.compile(r"\b(int|float)\b(?!.*\bbool\b)")
"""An annotation of a field that holds a number, and never true or false."""

Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Batch = Annotated[int, Field(ge=1, le=65_536)]
Seconds = Annotated[float, Field(gt=0, le=1_000_000)]
Text = Annotated[str, Field(min_length=1)]
LayerName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*$")]
Weight = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, allow_inf_nan=False)]
Step = Annotated[int, Field(ge=0)]
Level = Annotated[str | int | float, BeforeValidator(_no_bool)]

AUTO = "auto"
"""A name that is decided when the others are known, and stored decided."""
SCRATCH = "scratch"
"""As `model.name`: a new model, which only `sft` makes; nothing can be loaded under it."""
MODEL_WORDS = (AUTO, "tiny", SCRATCH)
"""Values of `model.name` that are no folder, and no model of a hub or a server."""


class Section(BaseModel):
    """A part of the tree: frozen, unknown keys refused."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_bool(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = str(cls.model_fields[info.field_name or ""].annotation)
        return _no_bool(value) if _NUMBER.search(annotation) else value


class OpenSection(BaseModel):
    """A part of the tree in which settings of a plugin stand beside our own keys."""

    model_config = ConfigDict(extra="allow", frozen=True)

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but our own keys, passed to the factory as keyword arguments."""
        return dict(self.model_extra or {})


class Named(OpenSection):
    """A plugin by name with its own settings: `env: {name: corpus, corpus: docs/}`."""

    name: str

    @model_validator(mode="before")
    @classmethod
    def _name_only(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class TaskConfig(Section):
    """One environment of the run with its own reward, judge, protocol and retriever."""

    env: Named = Named(name="regulations")
    """The source of episodes: a registered name, or a mapping of the name and the environment's own
    [settings](built-ins.md)."""
    wrapper: Named | None = None
    """A [wrapper](hooks.md) around it: a name, or a mapping of the name and its settings. `--agent
    COMMAND` is short for `{name: agent, command: COMMAND}`."""
    weight: Weight | dict[Step, Weight] = 1.0
    """Share of this task among the prompts, relative to the others: a number, or stages such as
    `{0: 1.0, 30: 0.5}`. With 0 it is evaluated and never trained on."""
    difficulty: dict[Step, Level] | None = None
    """The environment's setting `difficulty` as it changes in training: stages such as `{0: easy,
    30: hard}`. Evaluations play the last one. One that never changes is `env.difficulty`."""
    reward: str | dict[Step, str] = AUTO
    """A reward [expression](rewards.md#expressions), or stages of them. `auto`: the one that the
    environment is registered with, else `format+em`, in which form and answer count alike. With a
    model that writes the format well, `0.2*format+em` puts the weight on the answer."""
    metrics: list[str] = Field(
        default=["format", "em", "searched", "searches", "support_recall", "all_gold"]
    )
    """Reward components that are logged without being rewarded. The default shows the difference
    between an agent that never searches and one that searches and finds nothing. Metrics of
    searches are left out if the protocol has no search. `signal:NAME` is what the environment
    reports under this name in `info["signals"]`."""
    protocol: Named = Named(name=AUTO)
    """The [tag protocol](built-ins.md#protocols): a name, or a mapping of the name and its
    settings. `auto`: the one that the environment is registered with, else
    `think-search-answer`."""
    retriever: Named = Named(name=AUTO)
    """The search engine: a name, or a mapping of the name and its
    [settings](built-ins.md#retrievers). `auto`: the one that the environment is registered with,
    else `bm25`."""
    judge: Named = Named(name="lexical")
    """The judge of answers, for reward components that take one: a name, or a mapping of the name
    and its [settings](built-ins.md#judges). `lexical` compares words and asks nobody."""

    @field_validator("weight", "difficulty", "reward", mode="before")
    @classmethod
    def _is_written_well(cls, value: Any, info: ValidationInfo) -> Any:
        env = info.data.get("env")
        if info.field_name == "difficulty" and value and env and "difficulty" in env.settings:
            raise ValueError("env.difficulty says it already; keep one of them")
        return checked_stages(value, info.field_name or "")

    @field_validator("protocol", "retriever", mode="before")
    @classmethod
    def _settings_only(cls, value: Any) -> Any:
        return {"name": AUTO, **value} if isinstance(value, dict) else value


class ScratchConfig(Section):
    """Shape of a new Qwen3 model, for `model.name: scratch` (see `sft`)."""

    vocab_size: Count = 2560
    """Entries of the byte-level BPE tokenizer."""
    hidden_size: Count = 128
    """Width of the residual stream."""
    intermediate_size: Count = 320
    """Width of the MLP."""
    num_layers: Count = 4
    """Blocks."""
    num_heads: Count = 4
    """Query heads."""
    num_kv_heads: Count = 2
    """Key and value heads; must divide `num_heads`."""
    head_dim: Annotated[int, Field(ge=2, multiple_of=2)] = 32
    """Width of a head; must be even."""
    tokenizer_tasks: Count = 3000
    """Training tasks whose expert episodes the tokenizer is trained on."""

    @field_validator("num_kv_heads")
    @classmethod
    def _divides_heads(cls, value: int, info: ValidationInfo) -> int:
        num_heads = info.data.get("num_heads", value)
        if num_heads % value:
            raise ValueError(f"must divide num_heads = {num_heads}")
        return value


class ModelConfig(Section):
    """The policy. `name`: a path, a hub id, `tiny` (embedded), `auto` or `scratch` (sft only)."""

    name: Annotated[Weights, Field(min_length=1)] = "auto"
    """A folder, a hub id, a run folder, `tiny` (embedded), `scratch` (`sft` only) or `auto`:
    Qwen/Qwen3-4B where a GPU or its weights are here, else `tiny`, and it says so; a run stores
    what it became. `tiny` is the policy that the environment brings for its protocol, stored as
    `package:folder`, or SearchRL's own."""
    scratch: ScratchConfig = ScratchConfig()
    adapter: Literal["auto", "lora", "full"] = "auto"
    """`lora`, `full`, or `auto`: LoRA, but full fine-tuning for the tiny model, which has too few
    weights to need an adapter."""
    lora_r: Count = 16
    """Rank of the adapter. 16 on all linear layers is ample for reinforcement learning, whose
    updates are small."""
    lora_targets: Annotated[list[LayerName], Field(min_length=1)] | None = None
    """Names of the linear layers that get an adapter, such as `[q_proj, k_proj, v_proj, o_proj]`;
    null: all of the blocks. A saved adapter keeps the layers that it has."""
    lora_alpha: Count = 32
    """The adapter's output is scaled by alpha / r."""
    lora_dropout: Fraction = 0.0
    """Acts in `sft` only. In a pass whose log-probs enter a ratio, dropout would change the
    ratio."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto`: bfloat16 on cuda, float32 elsewhere and where all weights are trained: in bfloat16
    most steps of the optimiser are too small to change a weight. float16 trains adapters only, with
    dynamic loss scaling (metric `loss_scale`). Log-probs, ratios and adapters are float32 whatever
    it is."""
    quantize: Literal["none", "nf4"] = "none"
    """`nf4`: QLoRA. The frozen base in four bits (bitsandbytes, double quantisation), computed in
    `model.dtype`; adapters only. Sampler and trainer share it. An adapter that was trained on it
    needs it: `eval RUN`, `ask RUN` and `--resume` keep the setting; elsewhere, set it again."""
    gradient_checkpointing: bool = False
    """The update needs less memory and more time; the gradients are the same."""
    thinking: bool = True
    """Passed to the chat template as `enable_thinking`; no effect where the template does not know
    it."""
    instructions: bool = True
    """Put the protocol's instruction into prompts. A small model has no room for it and learns the
    protocol in `sft`. An instruction that you write yourself (`protocol.instruction`) is always put
    into prompts."""
    max_context: Count = 4096
    """Tokens the model may see. The smaller of this and `rollout.max_total_tokens` ends an
    episode."""

    @field_validator("quantize")
    @classmethod
    def _stays_frozen(cls, value: str, info: ValidationInfo) -> str:
        if value != "none" and info.data.get("name") == "scratch":
            raise ValueError("a new model has no weights worth quantising; use none")
        if value != "none" and info.data.get("adapter") == "full":
            raise ValueError("quantised weights are frozen; use none, or model.adapter: lora")
        return value


class AlgorithmConfig(Section):
    """The loss. None stands for the algorithm's own number (`Algorithm.resolve`)."""

    name: str = "grpo"
    """One of the [algorithms](built-ins.md#algorithms), or a plugin's. `tis` where the generator is
    a plugin's: the log-probs that it says may differ from those that the trainer computes."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The update stops pushing a token down when its probability has fallen to 1 − `clip_low` times
    the old one. null (also for the next two keys): [the algorithm's own
    value](built-ins.md#algorithms), 0.2 for `grpo`. The numbers used are in the plan, and in the
    run's `provenance.json`."""
    clip_high: Annotated[float, Field(gt=0)] | None = None
    """The same upwards: it stops at 1 + `clip_high` times the old probability; 0.2 for `grpo`. With
    a value above `clip_low` (0.28 in DAPO), unlikely tokens may grow faster, which keeps
    exploration alive."""
    beta: Annotated[float, Field(ge=0)] | None = None
    """Weight of the k3 KL to the reference: the base model with its adapter off, or the starting
    weights where all are trained; 0.001 for `grpo`. 0 saves the reference pass and its memory, and
    groups of one reward then leave the step."""
    reduction: Literal["auto", "token-mean", "sequence-mean", "constant"] = "auto"
    """The sum of token terms into one loss; `auto` takes what the algorithm's paper does. See
    [reduction](../explanation/mathematics.md#reduction)."""
    control: Literal["none", "shuffled"] = "none"
    """`shuffled`: a control. Every rollout is trained with the scores of a random one of its group;
    recorded scores and metrics stay true, recorded advantages are those that were trained."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Passed to the algorithm's factory: settings that only this algorithm has, such as
    `max_refills` of `dapo`; `algorithm.max_refills` is short for that."""


class RolloutConfig(Section):
    """Sampling of episodes. Token limits are per episode, never silently exceeded."""

    group_size: Batch = 8
    """Episodes per prompt: the group whose mean is the baseline. Larger groups find rare successes,
    smaller ones cover more prompts. The limit of this and of every batch size is far above what
    memory holds, and a slip of the keyboard is found before anything is loaded."""
    prompts_per_step: Batch = 8
    """Prompts per training step; times `group_size` it is the number of episodes of a step."""
    temperature: Annotated[float, Field(gt=0, le=100)] = 1.0
    """1 samples from the policy itself, so that log-probs are its own. Lower values narrow
    exploration and change what a ratio means. At 100 every token is as likely as any other."""
    max_turn_tokens: Count = 500
    """Tokens of one model turn. A turn that is cut here never reaches the environment, because half
    a query is not an action."""
    max_observation_tokens: Count = 500
    """Tokens of one observation, tags included; passages are cut before they are wrapped."""
    max_total_tokens: Count = 4096
    """Tokens that the model may read at once, prompt included: of the whole episode, unless a
    wrapper compacts them. Also the constant of the `constant` reduction."""
    batch_size: Batch = 64
    """Dialogues decoded together. Lower this first if a GPU runs out of memory in sampling."""
    env_timeout_s: Seconds | None = 60.0
    """Seconds an environment's reset or step may take, its searches included; null: no limit. A
    hang becomes a failure that names the environment, or the retriever or protocol that it called.
    Episodes that hang wait at the same time, so a whole batch of them costs little more than one
    such wait. Code that never gives the interpreter back ends the process after five minutes, or
    after this limit if it is longer. At most 1,000,000 (eleven days)."""
    reward_timeout_s: Seconds | None = 60.0
    """Seconds a reward component may take for one episode; null: no limit."""
    step_timeout_s: Seconds | None = None
    """Seconds after which groups that were drawn for training are complete with the rollouts that
    have ended; the others are dropped and counted (metric `late_rollouts`). It is looked at between
    turns, so which rollouts are late depends on the clock. null: no limit."""
    max_failure_frac: Fraction = 0.2
    """Training stops when a larger share of a step's episodes failed, and so does an evaluation. A
    failed episode could not be scored; one with a low score has not failed."""


class OptimConfig(Section):
    """AdamW(0.9, 0.999), no weight decay."""

    optimizer: Literal["adamw", "adamw8bit"] = "adamw"
    """`adamw8bit` keeps its state in eight bits (bitsandbytes), except parameters with fewer than
    4,096 entries. This needs a quarter of the memory, which matters in full fine-tuning."""
    lr: Fraction = 2e-5
    """Peak learning rate. 2e-5 suits LoRA on a model of billions; the tiny model's preset has a
    larger one. At most 1: AdamW moves every weight by about this much, and weights are smaller."""
    warmup_steps: Annotated[int, Field(ge=0)] = 5
    """Steps of linear warm-up: at first the optimiser has no statistics of the gradients."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warm-up: constant, or linear or cosine to zero at `max_steps`."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 0.5
    """Gradients are scaled down to this norm; with a large number (1e9), never."""
    micro_batch_tokens: Count = 8192
    """Tokens computed in one forward and backward pass: those of the rollouts, and each prompt once
    per group. Changes memory and speed, never the gradient. Where memory runs out it is halved for
    the rest of the run and the micro-batch is done again (metric `oom_splits`)."""
    epochs: Count = 1
    """Passes over the rollouts of a step. With one update per step the sampler's log-probs are
    exactly those of the policy, and nothing is clipped. More updates learn more from each sample;
    they are off-policy, and the clip range limits them."""
    mini_batches: Count = 1
    """Optimiser steps of one pass. A mini-batch holds whole groups and has its own denominator.
    Which groups are together depends only on `seed` and step. The learning rate follows training
    steps, not updates."""


class EngineConfig(Section):
    """The generator, which turns prompts into tokens."""

    generator: Named = Named(name="auto")
    """`auto` is `slots`, or `hf` for a model that the slot engine cannot run; a line says why. Or
    `slots`, `hf` or a plugin's: a name, or a mapping of the name and the generator's own
    [settings](built-ins.md#generators)."""
    sharding: Literal["ddp", "fsdp2"] = "ddp"
    """Shares of the processes of a [`torchrun`](../how-to/scale.md). `ddp`: each holds all weights
    and the optimiser's whole state. `fsdp2`: each holds a part of both; layers are gathered one by
    one for every pass, and all weights while `slots` or `hf` sample."""
    deterministic: Literal["auto"] | bool = "auto"
    """Observations are read when nothing is left to decode, not when they arrive. So every run
    computes the same things together, and every float is the same to the last bit, however long
    tools take. `auto`: true on the CPU, where decoding fewer rows at a time costs little."""
    max_mismatch: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Training stops when the log-probs of sampler and trainer differ by more nats per token (one
    token: by 50 times as many). null: [by dtype](../how-to/doctor.md#how-far-apart), which allows
    for rounding. A larger value is for a generator that computes in another precision on
    purpose."""

    @property
    def is_sampled_here(self) -> bool:
        """Is the generator one that reads the policy's weights? A plugin's takes them over."""
        return self.generator.name in ("auto", "slots", "hf")


class ScaleConfig(Section):
    """The players of rollouts, and how far ahead of the update they are."""

    backend: Named | None = None
    """The player of the rollouts: a [backend](built-ins.md#backends) such as `copy`, or a mapping
    of the name and its settings. null: the policy that is trained, in this process."""
    max_staleness: Annotated[int, Field(ge=0, le=1)] = 0
    """1: a step's rollouts are drawn while the step before it is trained, with the weights from
    before that update (metric `staleness`). For algorithms that correct for it (`tis`,
    `masked_tis`) and a sampler with weights of its own, such as a `backend`. 0: the newest."""


class SamplingConfig(Section):
    """Cuts of what may be drawn. For evaluation: in training they bias the ratio."""

    top_k: Annotated[int, Field(ge=0)] = 0
    """Only the k most probable tokens; 0: all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the most probable tokens that together have this probability."""
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Only tokens at least this probable, relative to the most probable one."""
    allow_truncated: bool = False
    """Training refuses a cut distribution: each token was drawn with a probability larger than the
    log-prob says, so every ratio is too large. True trains on it anyway; the metric `log_kept_mass`
    says by how many nats per token."""

    @property
    def cuts(self) -> str:
        """The settings by which some tokens can never be drawn: `top_k=5, top_p=0.9`."""
        whole = {"top_k": 0, "top_p": 1, "min_p": 0}
        cuts = ((name, getattr(self, name)) for name in whole)
        return ", ".join(f"{name}={value:g}" for name, value in cuts if value != whole[name])


class EvalConfig(Section):
    """Greedy evaluation on tasks that are not trained on: before and after training on `split`,
    during training on validation tasks."""

    num_tasks: Count = 256
    """Tasks of the evaluations before and after, always the first N: the same ones every time. With
    256 a proportion is known to about ± 0.06."""
    every: Annotated[int, Field(ge=0)] = 10
    """Steps between short evaluations during training, and one after the last step; 0: none, and no
    best checkpoint."""
    num_tasks_during: Count = 64
    """Tasks of a short evaluation, the first N of the split `validation`. An environment without
    that split lends the last tenth of its training tasks, from 1 to 64; they are never trained
    on."""
    split: str = "test"
    """Split of the evaluations before and after. Nothing that is decided during training looks at
    it."""
    num_samples: Count = 1
    """Episodes per task, of `searchrl eval` only. With several, the figures are means over all of
    them, and `pass@k` says how often one of k is right. They differ only with a `temperature` above
    0."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    """0 is greedy: the figures do not depend on chance."""
    forced: bool = True
    """Play each task that did not begin with a search a second time, with a search as its first
    turn. If `em_forced` is far above `em`, the model can answer after a search, and does not."""
    batch_size: Batch = 128
    """Dialogues decoded together in evaluation."""


class CheckpointConfig(Section):
    """Checkpoints that are kept. Each is written under another name and then renamed."""

    every: Count = 10
    """Steps between checkpoints. A killed run loses at most this many steps. After Ctrl-C or an
    error nothing is lost: a checkpoint is written before the program ends. A step has
    `rollout.prompts_per_step` × `rollout.group_size` episodes: for one every 1,000 episodes, 2
    steps of 25 × 20. The run says at its start how many episodes it is."""
    keep_last: Count = 2
    """Newest checkpoints that are kept."""
    keep_best: bool = True
    """Also keep the checkpoint with the best reward in a short evaluation, so on validation
    tasks."""


class LogConfig(Section):
    """Files of a run besides metrics.jsonl and summary.json."""

    trackers: list[Named] = Field(default_factory=list)
    """[Trackers](built-ins.md#trackers) that receive every step's metrics, by name or as mappings
    with their settings."""
    rollouts: bool = True
    """Write every trajectory; see [rollout rows](file-formats.md#a-rollout-row)."""
    compress: bool = True
    """Compress these files with gzip."""
    max_rollout_files: Annotated[int, Field(ge=0)] = 0
    """Keep the trajectories of the newest N steps only, and of the newest N short evaluations; 0
    keeps all."""

    @field_validator("trackers", mode="before")
    @classmethod
    def _one_or_none(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value or []
