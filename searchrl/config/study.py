"""The file of a study: arms that differ in their settings, seeds, and one budget for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from searchrl.config.sections import Section
from searchrl.config.tree import build_config, load_yaml, merge
from searchrl.errors import ConfigError

Name = Annotated[str, Field(pattern=r"^[\w][\w.+-]*$")]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Positive = Annotated[int, Field(ge=1)]


class Study(Section):
    """A study. The first arm is the one that the others are compared with."""

    base: dict[str, Any] = Field(default_factory=dict)
    """Settings of all runs."""
    arms: Annotated[dict[Name, dict[str, Any]], Field(min_length=1)]
    """The settings in which each arm differs from these, by the name of the arm."""
    seeds: Annotated[list[Seed], Field(min_length=1, default_factory=lambda: [0])]
    """Every arm is run with each of them."""
    steps: Positive | None = None
    """The budget of every run: optimiser steps, or the tokens that it samples."""
    sampled_tokens: Positive | None = None
    tried: dict[Name, Positive] = Field(default_factory=dict)
    """How many settings were tried before those of an arm were chosen; it is said beside the
    table where arms were not given the same search."""
    figure: str = "em"
    """The figure of the table."""

    def settings(self, arm: str, seed: int) -> dict[str, Any]:
        """The settings of one run."""
        own = merge(merge({}, self.base), self.arms[arm])
        budget: dict[str, Any] = {"seed": seed}
        if self.steps is not None:
            budget["max_steps"] = self.steps
        if self.sampled_tokens is not None:
            # More steps than can be needed: a step samples one token at least.
            budget |= {"max_steps": self.sampled_tokens, "max_sampled_tokens": self.sampled_tokens}
        return {**own, **budget}


def load_study(path: Path) -> Study:
    """Read the file of a study. ConfigError: with what is wrong, and what a file must hold."""
    values: Mapping[str, Any] = load_yaml(path)
    try:
        study = Study.model_validate({**values})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ConfigError(
            f"{path}: {'; '.join(lines)}. A study has base (settings), arms (name: settings), "
            "seeds, and steps or sampled_tokens"
        ) from error
    if (study.steps is None) == (study.sampled_tokens is None):
        raise ConfigError(f"{path}: name one budget: steps, or sampled_tokens")
    if unknown := [*(study.tried.keys() - study.arms.keys())]:
        raise ConfigError(f"{path}: tried names {unknown[0]!r}, which is no arm")
    for arm in study.arms:
        try:
            build_config(study.settings(arm, study.seeds[0]))
        except ConfigError as error:
            raise ConfigError(f"{path}: arm {arm}: {error}") from error
    return study
