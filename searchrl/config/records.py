"""The sections on what a run writes and keeps: its checkpoints, metrics and trajectories.

Owns their keys, defaults and reasons, as `sections.py` does for the rest. Caller: `tree.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from searchrl.config.sections import Count, Named, Section


class CheckpointConfig(Section):
    """Which checkpoints are kept. Each is written under another name and then renamed, so it is
    never incomplete."""

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
    """What a run writes besides metrics.jsonl and summary.json."""

    trackers: list[Named] = Field(default_factory=list)
    """[Trackers](builtins.md#trackers) that receive every step's metrics, by name or as mappings
    with their settings."""
    rollouts: bool = True
    """Write every trajectory; see [rollout rows](data_formats.md#a-rollout-row)."""
    compress: bool = True
    """Compress these files with gzip."""
    max_rollout_files: Annotated[int, Field(ge=0)] = 0
    """Keep the trajectories of the newest N steps only, and of the newest N short evaluations; 0
    keeps all."""

    @field_validator("trackers", mode="before")
    @classmethod
    def _one_or_none(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value or []
