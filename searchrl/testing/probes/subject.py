"""What the criteria of rewards, retrievers, trackers and algorithms are held against.

Owns the registered name with its settings, from which every criterion makes objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from searchrl.plugins.registry import Entry, Registry
from searchrl.testing.probes.places import locate


@dataclass(frozen=True, slots=True)
class PluginSubject:
    """A registered name with its settings, and the registry it is in."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> Self:
        """The subject of a registry's entry.

        Raises:
            PluginError: if what the entry registers cannot be loaded.
            ConfigError: for settings that it does not take.
        """
        return cls(registry, entry, entry.ensure_settings(settings or {}))

    def build(self, *args: Any) -> Any:
        """Call the factory; what it raises keeps the line at which the plugin raised it."""
        return self.entry.load()(*args, **self.settings)

    def returned_at(self, call: Callable[[], object]) -> object:
        """The line at which the plugin's file returns from `call`, made once more; else None."""
        return locate(self.entry.owner.file, call)
