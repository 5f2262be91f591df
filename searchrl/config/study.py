"""The file of a study: arms that differ in their settings, seeds, and one budget for all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from searchrl.config.faults import explain
from searchrl.config.sections import Section
from searchrl.config.tree import build_config, load_yaml, merge
from searchrl.errors import ConfigError, show_value, suggest

Positive = Annotated[int, Field(ge=1)]
Settings = dict[str, Any]

BUDGETS = {"steps": "max_steps", "sampled_tokens": "max_sampled_tokens", "episodes": "max_episodes"}
"""Budgets of a study, and the keys of a run that they set."""


class Study(Section):
    """A study: `arms` differ from `base`, and are compared with the first one; it has one budget.

    `tried` has how many settings were tried to choose those of an arm, where it was more than one.
    """

    base: Settings = Field(default_factory=dict)
    arms: Annotated[dict[str, Settings], Field(min_length=1)]
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
    steps: Positive | None = None
    sampled_tokens: Positive | None = None
    episodes: Positive | None = None
    tried: dict[str, Positive] = Field(default_factory=dict)
    figure: str = "em"

    def settings(self, arm: str, seed: int) -> Settings:
        """The settings of one run."""
        budget = {key: value for name, key in BUDGETS.items() if (value := getattr(self, name))}
        # More steps than can be needed: a step samples an episode and a token at least.
        budget = {"max_steps": max(budget.values())} | budget
        return {**merge(merge({}, self.base), self.arms[arm]), **budget, "seed": seed}


def load_study(path: Path) -> Study:
    """Read the file of a study. ConfigError: with each fault, and its line or its arm."""
    values = load_yaml(path)
    try:
        study = Study.model_validate(dict(values))
    except ValidationError as error:
        lines = explain(error, values, [values], [*Study.model_fields])
        raise ConfigError(f"{path} is no study:\n{lines}") from None
    if len(budgets := [name for name in BUDGETS if getattr(study, name)]) != 1:
        named = " and ".join(budgets) or "none"
        raise ConfigError(f"{path}: name one budget of {', '.join(BUDGETS)}; it names {named}")
    for arm in study.tried.keys() - study.arms.keys():
        raise ConfigError(f"{path}: tried: no arm {show_value(arm)}.{suggest(arm, study.arms)}")
    made: dict[str, str] = {}
    for arm in study.arms:
        where = f"{path}: arm {show_value(arm)}"
        if not re.fullmatch(r"\w[\w.+-]*", arm):
            raise ConfigError(f"{where} names a folder: use letters, digits and _.+-")
        try:
            config = build_config(study.settings(arm, study.seeds[0]))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        if study.steps is None and config.optim.schedule != "constant":
            raise ConfigError(
                f"{where}: optim.schedule = {config.optim.schedule} ends with the last step, which "
                f"a budget of {budgets[0]} does not know: set constant, or name steps"
            )
        settings = config.to_yaml()
        if (twin := made.setdefault(settings, arm)) != arm:
            raise ConfigError(f"{where} has the settings of {show_value(twin)}; leave one out")
    return study
