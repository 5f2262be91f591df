"""The tag protocol that is held to criteria: how to make it, and what it is found to write.

Owns what several criteria ask of one protocol, asked once. What it raises when it is asked is the
finding of P1, P2 or P6; the other criteria do not apply then. Judges nothing itself but whether all
that a protocol has is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from searchrl.contracts import TagProtocol
from searchrl.core.episode import Action
from searchrl.registry import Entry, Registry
from searchrl.testing.criteria import NotApplicable
from searchrl.testing.tags import find_actions, find_legal_turns, find_tags, find_wrapper, forge

T = TypeVar("T")

METHODS = (
    "parse",
    "final_answer",
    "format_score",
    "render_observation",
    "render_notice",
    "render_turn",
    "opening",
    "neutralise",
)
"""The methods of a protocol."""


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
    def protocol(self) -> TagProtocol:
        """An instance for every criterion but the first, which tells what is missing."""
        try:
            made = self.make()
        except (Exception, SystemExit) as error:
            raise NotApplicable("it could not be made (P1)") from error
        if next(find_attribute_problems(made), None) is not None:
            raise NotApplicable("it has not all that a protocol has (P1)")
        return made

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """One action of every kind that it writes."""
        return self._ask(find_actions)

    @cached_property
    def legal_turns(self) -> tuple[str, ...]:
        """Turns that say something and end with a stop string."""
        return self._ask(find_legal_turns)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """Every tag that it writes."""
        return self._ask(find_tags)

    @cached_property
    def wrapper(self) -> tuple[str, ...]:
        """The tags that only the environment may write."""
        return self._ask(find_wrapper)

    @cached_property
    def forged(self) -> str:
        """The text of a passage that pretends to be more."""
        return self._ask(forge)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """What hard texts for it are made of."""
        names = dict.fromkeys((*self.tags, *(tag.upper() for tag in self.tags), *self.legal_turns))
        return (*names, self.forged)

    def _ask(self, question: Callable[[TagProtocol], T]) -> T:
        try:
            return question(self.protocol)
        except NotApplicable:
            raise
        except (Exception, SystemExit) as error:
            raise NotApplicable(
                f"its methods raise, which P2 and P6 tell ({type(error).__name__})"
            ) from error


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
