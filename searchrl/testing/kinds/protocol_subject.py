"""The tag protocol that is held to criteria: how to make it, and what it is found to write.

Owns what several criteria ask of one protocol, asked once. What it raises when it is asked is the
finding of P1, P2 or P6; the other criteria do not apply then. Judges nothing itself but whether all
that a protocol has is there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from searchrl.contracts import TagProtocol
from searchrl.core.episode import Action
from searchrl.errors import ConfigError
from searchrl.plugins.registry import Entry, Registry
from searchrl.testing.criteria import NotApplicable
from searchrl.testing.kit.tags import find_actions, find_legal_turns, find_tags, find_wrapper, forge

METHODS = {
    "parse": "P2",
    "final_answer": "P3",
    "format_score": "P3",
    "render_turn": "P6",
    "opening": "P7",
    "neutralise": "P8",
    "render_observation": "P8",
    "render_notice": "P8",
}
"""The methods of a protocol, and the criterion that tells when one raises."""

_MAY_REFUSE = ("render_turn", "opening")
"""Those that raise ValueError for an action that the protocol has not."""


@dataclass(frozen=True)
class ProtocolSubject:
    """One registered protocol with its settings."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> ProtocolSubject:
        """The subject of a registration; raises `ConfigError` for settings it does not take."""
        return cls(registry, entry, entry.ensure_settings(settings or {}))

    def make(self) -> TagProtocol:
        """A new instance. Raises whatever the factory raises."""
        made: TagProtocol = self.entry.load()(**self.settings)
        return made

    @cached_property
    def raw(self) -> TagProtocol:
        """An instance for the criterion that tells what one of its methods does wrong."""
        try:
            made = self.make()
        except (Exception, SystemExit) as error:
            raise NotApplicable("it could not be made (P1)") from error
        if next(find_attribute_problems(made), None) is not None:
            raise NotApplicable("it has not all that a protocol has (P1)")
        return made

    @property
    def protocol(self) -> TagProtocol:
        """The same for every other criterion, which does not apply where a method raises."""
        guarded: Any = _Guarded(self.raw)
        return guarded  # type: ignore[no-any-return]

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """One action of every kind that it writes."""
        return find_actions(self.protocol)

    @cached_property
    def legal_turns(self) -> tuple[str, ...]:
        """Turns that say something and end with a stop string."""
        return find_legal_turns(self.protocol)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag that it writes."""
        return find_tags(self.protocol)

    @cached_property
    def wrapper(self) -> tuple[str, ...]:
        """The tags that only the environment may write."""
        return find_wrapper(self.protocol)

    @cached_property
    def forged(self) -> str:
        """The text of a passage that pretends to be more."""
        return forge(self.protocol)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What hard texts for it are made of."""
        names = dict.fromkeys((*self.tags, *(tag.upper() for tag in self.tags), *self.legal_turns))
        return (*names, self.forged)


class _Guarded:
    """A protocol whose methods raise `NotApplicable` in place of what they raise."""

    def __init__(self, protocol: TagProtocol) -> None:
        self._protocol = protocol

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._protocol, name)
        if name not in METHODS:
            return value

        @functools.wraps(value)
        def call(*args: Any) -> Any:
            try:
                return value(*args)
            except (Exception, SystemExit) as error:
                is_refusal = isinstance(error, ValueError) and name in _MAY_REFUSE
                if is_refusal or isinstance(error, ConfigError):
                    raise
                raise NotApplicable(f"{name}() raises ({METHODS[name]})") from error

        return call


def find_attribute_problems(made: object) -> Iterator[tuple[str, str]]:
    """What is missing of a protocol, and how to mend it."""
    for name in ("name", "instruction"):
        value = getattr(made, name, None)
        if not isinstance(value, str) or not value.strip():
            yield f"{name} = {value!r}; expected a text", f"set self.{name} to a text"
    stops = getattr(made, "stops", None)
    if (
        not isinstance(stops, tuple)
        or not stops
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        yield (
            f"stops = {stops!r}; expected a tuple of texts, none of them empty",
            "set self.stops to the closing tags with which a turn ends, as in ('</search>',)",
        )
    for name in METHODS:
        if not callable(getattr(made, name, None)):
            yield f"it has no method {name}()", f"see searchrl.contracts.TagProtocol.{name}"
