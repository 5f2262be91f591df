"""The section `alarms`: which alarms watch a run, with which settings, and what they may do."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_serializer, model_validator

from searchrl.config.sections import AUTO, OpenSection, Section

OFF = "off"
"""The action of an alarm that does not watch."""


class AlarmSpec(OpenSection):
    """Setting of one alarm: `ACTION`, or a mapping of `action` and its own settings."""

    action: Literal["auto", "warn", "stop", "rollback", "off"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _action_only(cls, value: Any) -> Any:
        spec = value if isinstance(value, dict) else {"action": value}
        action = spec.get("action")
        if action is None or isinstance(action, bool):  # YAML reads `off` as false
            action = OFF if action is False else AUTO
        return spec | {"action": action}

    @model_serializer
    def _short_form(self) -> Any:
        return {"action": self.action, **self.settings} if self.settings else self.action


BUILTIN_ALARMS = (
    *("divergence", "mismatch", "kl_blow_up", "entropy_collapse", "format_collapse"),
    *("search_collapse", "length_collapse", "likelihood_collapse", "dead_groups"),
    *("constant_reward", "one_component", "truncation", "retrieval_failure"),
)
"""The alarms that watch a run by default."""


class AlarmsConfig(Section):
    """Alarms of a training run, and the actions when one sounds."""

    watch: dict[str, AlarmSpec] = Field(
        default_factory=lambda: {name: AlarmSpec() for name in BUILTIN_ALARMS}
    )
    """The [alarms](built-ins.md#alarms) by name, all built-in ones by default; what you write is
    added. A value is an action, or a mapping of `action` and the alarm's own settings. `auto`: what
    the alarm asks for. `warn` says it and goes on. `stop` keeps a checkpoint and ends. `rollback`
    [returns to the best checkpoint](../how-to/read-a-run.md#collapse). `off`: it does not watch."""
    max_rollbacks: Annotated[int, Field(ge=0)] = 2
    """Returns to the best checkpoint; the next `rollback` is a `stop`. What goes wrong three times
    is no accident."""
    rollback_lr: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The learning rate is multiplied by this at every rollback, for the rest of the run."""
