"""The section `alarms`: which alarms watch a run, with which settings, and what they may do.

Owns the short forms of an alarm's entry and the list of those that watch by default. It loads no
alarm; `alarms/watch.py` does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from searchrl.config.sections import AUTO, Section


class AlarmSpec(BaseModel):
    """Setting of one alarm: `ACTION`, or a mapping of `action` and its own settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    action: Literal["auto", "warn", "stop", "rollback", "off"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _action_only(cls, value: Any) -> Any:
        # YAML reads `off` as false and `on` as true.
        named = {False: "off", True: AUTO, None: AUTO}
        if value is None or isinstance(value, bool):
            return {"action": named[value]}
        if isinstance(value, dict) and isinstance(value.get("action"), bool):
            return value | {"action": named[value["action"]]}
        return {"action": value} if isinstance(value, str) else value

    @model_serializer
    def _short_form(self) -> Any:
        return {"action": self.action, **self.settings} if self.settings else self.action

    @property
    def is_on(self) -> bool:
        """True if the alarm watches the run."""
        return self.action != "off"

    @property
    def chosen_action(self) -> str | None:
        """The action, whatever the alarm asks for; None: what it asks for."""
        return self.action if self.is_on and self.action != AUTO else None

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the action, passed to the factory as keyword arguments."""
        return dict(self.model_extra or {})


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
