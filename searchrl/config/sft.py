"""The section `sft`: the stages of a supervised cold start."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from searchrl.config.sections import Batch, Count, Section, Weight
from searchrl.contracts.settings import FilePath


class SftStage(Section):
    """One stage of supervised cold start: `mix` weighs the env's scripted policies."""

    steps: Count = 500
    """Optimiser steps of this stage."""
    mix: dict[str, Weight] = Field(default={"expert": 1.0})
    """Scripted policies that are imitated, with their weights: `expert` and the environment's other
    scripts. They are from 0, not all 0; what you write replaces the whole default."""
    loss_on: Literal["model", "all"] = "model"
    """`model`: only what the model writes. `all`: prompts and observations too, which teaches a
    model from scratch to read."""
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-4
    """Peak learning rate of this stage; at most 1, as in `optim`."""
    batch_size: Batch = 32
    """Demonstrations per step."""
    warmup_steps: Annotated[int, Field(ge=0)] = 20
    """Steps of linear warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """After warm-up: constant, or linear or cosine to zero at the end of the stage."""

    @field_validator("mix")
    @classmethod
    def _is_of_something(cls, value: dict[str, float]) -> dict[str, float]:
        if sum(value.values()) <= 0:
            raise ValueError("at least one scripted policy needs a weight above 0")
        return value


class SftConfig(Section):
    """Supervised cold start from the env's scripted policies or from a JSONL of traces."""

    stages: Annotated[list[SftStage], Field(min_length=1)] = Field(default=[SftStage()])
    """Stages of the cold start, in order; the keys are below."""
    traces: FilePath | None = None
    """JSONL of recorded demonstrations instead of scripted ones; see
    [traces](file-formats.md#traces)."""
    num_tasks: Count | None = None
    """Number of training tasks of each environment that are shown. Each is played once and kept,
    which saves time where one is drawn several times. `null`: all, each played when it is drawn."""
    micro_batch_tokens: Count = 16384
    """As in `optim`; rollouts are padded here."""
    max_grad_norm: Annotated[float, Field(gt=0)] = 1.0
    """As in `optim`; larger, since gradients of supervised learning are less noisy."""
