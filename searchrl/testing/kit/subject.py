"""What criteria are checked on: a registered name with its settings, of any kind.

Owns how an object of it is made, the protocol that belongs to it, and the lines at which its file
returns. Every criterion makes objects of its own. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from searchrl.config.sections import TaskConfig
from searchrl.plugins.parts import fill_parts, make_judge
from searchrl.plugins.registry import Entry, Registry
from searchrl.plugins.signatures import takes_judge
from searchrl.retrieval.indexes import IndexCache
from searchrl.testing.kit.places import locate
from searchrl.testing.kit.tags import Grammar


@dataclass(frozen=True)
class Subject:
    """A registered name with its settings, and the registry it is in."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> Subject:
        """The subject of a registry's entry.

        Raises:
            PluginError: if what the entry registers cannot be loaded.
            ConfigError: for settings that it does not take.
        """
        given = dict(settings or {})
        filled = fill_parts(registry, entry, given)
        checked = entry.ensure_settings(filled)
        # Names of parts stay names: settings are sent to other processes.
        names = {key: given[key] for key in checked if filled[key] is not given[key]}
        return cls(registry, entry, checked | names)

    def make(self, *args: Any, **parts: Any) -> Any:
        """Call the factory; what it raises keeps the line at which the plugin raised it.

        A reward component that takes a judge gets the one of a configuration that names none.
        """
        settings = fill_parts(self.registry, self.entry, self.settings)
        if self.entry.kind == "reward" and takes_judge(self.entry.load()):
            parts["judge"] = make_judge(self.registry, TaskConfig().judge.name, {})
        return self.entry.load()(*args, **parts, **settings)

    def returned_at(self, call: Callable[[], object]) -> object:
        """The line at which the plugin's file returns from `call`, made once more; else None."""
        return locate(self.entry.owner.file, call)

    @cached_property
    def grammar(self) -> Grammar:
        """The protocol that it is, or with which an environment is played by default."""
        entry = self.entry
        is_env = entry.kind == "env"
        made = self.registry.make_protocol(entry, entry.protocol, {}) if is_env else self.make()
        return Grammar(made)

    @cached_property
    def retriever(self) -> IndexCache:
        """An environment's own retriever; its instances share the indexes."""
        return IndexCache(self.registry.get("retriever", self.entry.retriever).load())
