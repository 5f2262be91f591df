"""The subject of criteria: a registered name with its settings, of any kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType, MappingProxyType
from typing import Any

from searchrl.config.sections import TaskConfig
from searchrl.errors import ConfigError
from searchrl.plugins.parts import fill_parts, make_judge
from searchrl.plugins.registry import Entry, Registry
from searchrl.plugins.signatures import find_settings, has_setting
from searchrl.retrieval.indexes import IndexCache
from searchrl.testing.kit.tags import Grammar

GIVE = "check it with --set NAME=VALUE"
"""The remedy where settings are missing."""


class NeedsSettings(Exception):
    """Raised where a factory that was given no settings says that it wants some."""


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
        """PluginError if the entry cannot be loaded, ConfigError for settings it does not take."""
        usual = entry.options.get("check") or {}
        filled = fill_parts(registry, entry, {**usual, **(settings or {})})
        return cls(registry, entry, entry.ensure_settings(filled))

    def make(self, *args: Any, **parts: Any) -> Any:
        """Call the factory; what it raises keeps the line at which the plugin raised it.

        A reward component that takes a judge gets the one of a configuration that names none.
        Raises NeedsSettings if it was given no settings and says ConfigError.
        """
        factory = self.entry.load()
        if self.entry.kind == "reward" and has_setting(factory, "judge"):
            parts["judge"] = make_judge(self.registry, TaskConfig().judge.name, {})
        try:
            return factory(*args, **parts, **self.settings)
        except ConfigError as error:
            if self.settings or not find_settings(factory):  # else there is nothing to set
                raise
            raise NeedsSettings(f"{error}; {GIVE}") from error

    def returned_at(self, call: Callable[[], object]) -> tuple[str, int] | None:
        """The line of the last `return` of the plugin's file in `call`, made once more."""
        file = self.entry.owner.file
        lines: list[int] = []

        def look(frame: FrameType, event: str, value: object) -> None:
            if event == "return" and frame.f_code.co_filename == file:
                lines.append(frame.f_lineno)

        before = sys.getprofile()
        sys.setprofile(look)
        try:
            call()
        except (Exception, SystemExit):  # it is made for the place alone
            return None
        finally:
            sys.setprofile(before)
        return (file, lines[-1]) if lines else None

    @cached_property
    def grammar(self) -> Grammar:
        """The protocol that it is, or with which an environment is played by default."""
        if self.entry.kind != "env":
            return Grammar(self.make())
        made = self.registry.make_protocol(self.entry, self.entry.protocol, {}, self.settings)
        return Grammar(made)

    @cached_property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The tools of an environment."""
        return self.entry.list_tools(self.settings)

    @cached_property
    def retriever(self) -> IndexCache:
        """An environment's own retriever; its instances share the indexes."""
        return IndexCache(self.registry.get("retriever", self.entry.retriever).load())
