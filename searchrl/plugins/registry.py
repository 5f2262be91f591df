"""Names to objects: the `Registry` of everything the loaded plugins offer.

Owns lookup by name (plain, `plugin:name`, `scheme:rest`), did-you-mean, conflicts, lazy imports and
the call of a factory with its settings.
"""

from __future__ import annotations

import functools
import importlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, NoReturn

from searchrl.contracts.playing import ExpertFactory
from searchrl.errors import ConfigError, PluginError, SearchRLError, UnknownNameError, suggest
from searchrl.hookspecs import HOOKS, Factory
from searchrl.plugins.provenance import Origin, Owner, PluginRecord, hash_owner
from searchrl.plugins.signatures import (
    check_settings,
    find_signature_problem,
    has_setting,
    passed_keywords,
)

NOT_FOUND = (
    " `searchrl plugins` lists what is loaded; what a package offers is there once it is installed "
    "(pip install), and what a file offers with --plugin FILE."
)
"""Advice on a name that nobody registers."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered name. `line` is where its plugin called `register`.

    `options` holds what its hook takes beyond a factory. `argument` is the rest of a name
    looked up under a scheme (`FrozenLake-v1` of `gym:FrozenLake-v1`), else empty.
    """

    kind: str
    name: str
    factory: Factory
    owner: Owner
    line: int = 0
    description: str = ""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.owner} ({self.where}) {self.kind} '{self.name}'"

    @property
    def where(self) -> str:
        """`file:line` of the registration."""
        is_python = self.owner.origin is Origin.PYTHON
        return "given in Python" if is_python else f"{self.owner.file}:{self.line}"

    @property
    def title(self) -> str:
        """The name as it was looked up: under a scheme with what followed it."""
        return self.name + self.argument

    @property
    def qualified(self) -> str:
        """`plugin:name`, which is found whatever else is installed."""
        return f"{self.owner.name}:{self.name}"

    @property
    def protocol(self) -> str:
        """The protocol of an environment if the configuration names none."""
        return self.options.get("protocol") or "think-search-answer"

    @property
    def reward(self) -> str:
        """The reward expression of an environment if the configuration has none."""
        return self.options.get("reward") or "format+em"

    @property
    def retriever(self) -> str:
        """The retriever of an environment if the configuration names none."""
        return self.options.get("retriever") or "bm25"

    @property
    def is_concurrent(self) -> bool:
        """True if a retriever or reward may be called by several threads at once."""
        return bool(self.options.get("concurrent", True))

    @property
    def is_of_group(self) -> bool:
        """True if a reward scores a whole group at once."""
        return bool(self.options.get("group", False))

    @property
    def script_names(self) -> tuple[str, ...]:
        """The scripted policies of an environment: `expert` first, if it has one."""
        expert = ("expert",) if self.options.get("expert") is not None else ()
        return (*expert, *self.options.get("scripts", {}))

    def policy_for(self, protocol: str) -> str | None:
        """`package:folder` of an environment's embedded policy for a protocol, or `plugin:name`."""
        policy: str | None = self.options.get("policies", {}).get(protocol.rpartition(":")[2])
        return policy

    def load(self) -> Callable[..., Any]:
        """Return the factory, importing it if it was registered as a lazy string."""
        factory = self._resolve(self.factory)
        is_lazy = isinstance(self.factory, str)  # others were looked at when they were registered
        if is_lazy and (problem := find_signature_problem(self.kind, factory)):
            raise PluginError(f"{self}: {problem}")
        return functools.partial(factory, name=self.argument) if self.argument else factory

    def load_script(self, name: str = "expert") -> ExpertFactory:
        """Return a scripted policy of an environment, or raise `UnknownNameError`."""
        if not self.script_names:
            raise UnknownNameError(
                f"env '{self.title}' ({self.owner}) registers no scripted policy, so there is "
                "nothing to replay; give register_envs an `expert=`, or use --policy model"
            )
        if name not in self.script_names:
            raise UnknownNameError(
                f"env '{self.title}' has no scripted policy '{name}'."
                f"{suggest(name, self.script_names)} Name one with --policy scripted:NAME, or in "
                "sft.stages.0.mix"
            )
        factories = self.options if name == "expert" else self.options["scripts"]
        return self._resolve(factories[name])

    def is_safe_name(self) -> bool:
        """Return True if its plugin says that the name under a scheme imports nothing."""
        is_safe = self.options.get("is_safe")
        return is_safe is not None and bool(self._resolve(is_safe)(self.argument))

    def make(self, *args: Any, **settings: Any) -> Any:
        """Check the settings, then call the factory; an error in it names the plugin."""
        factory = self.load()
        passed = passed_keywords(self.kind)
        given = {key: value for key, value in settings.items() if key not in passed}
        settings |= self.ensure_settings(given)
        try:
            return factory(*args, **settings)
        except SearchRLError:
            raise
        except Exception as error:
            # An error in a built-in is our bug; it keeps its own traceback.
            if self.owner.origin is Origin.BUILTIN:
                raise
            raise PluginError(f"{self} could not be made: {describe_error(error)}") from error

    def ensure_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings as the factory takes them; see `signatures.check_settings`."""
        return check_settings(self.kind, self.name, self.load(), settings)

    def list_tools(self, settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        """The tools of an environment or a wrapper: registered, or by its factory's `tools`."""
        made = self._resolve(self.factory)
        is_nameless = self.name.endswith(":") and not self.argument  # of a scheme
        if is_nameless or not hasattr(made, "tools"):
            return tuple(self.options.get("tools", ()))
        named = {"name": self.argument} if self.argument else {}
        given = check_settings(self.kind, self.name, made.tools, settings)
        return tuple(made.tools(**named, **given))

    def _resolve(self, factory: Factory) -> Callable[..., Any]:
        if not isinstance(factory, str):
            return factory
        module, _, path = factory.partition(":")
        with raising_of(f"{self} cannot load '{factory}':"):
            target: Any = operator.attrgetter(path)(importlib.import_module(module))
        if not callable(target):
            raise PluginError(f"{self}: '{factory}' is {type(target).__name__}, not a callable")
        return target  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """A plugin that failed to load and registered nothing. `detail` holds the traceback."""

    plugin: str
    source: str
    message: str
    file: str = ""
    line: int = 0
    version: str = ""
    detail: str = field(default="", repr=False)

    def __str__(self) -> str:
        place = f" ({self.file}:{self.line})" if self.line else f" ({self.file})" * bool(self.file)
        return f"plugin {self.plugin} {self.version}".rstrip() + f"{place} {self.message}"


@dataclass(frozen=True, eq=False, repr=False)
class Registry:
    """Everything the loaded plugins offer. Immutable once built; made by `load_plugins`."""

    _entries: tuple[Entry, ...]
    owners: tuple[Owner, ...]
    failures: tuple[PluginFailure, ...] = ()
    recorded: tuple[PluginRecord, ...] = ()
    pinned: frozenset[str] = frozenset()
    """Sources of code that a run folder named, and not the user."""

    def get(self, kind: str, name: str) -> Entry:
        """Return the entry of `name`: plain, `plugin:name`, or `scheme:rest` for environments.

        Raises `UnknownNameError` with near matches, `PluginError` for a name that two plugins
        offer, `ConfigError` for a scheme without a rest.
        """
        matches = self._match(kind, name)
        if len(matches) > 1:
            raise PluginError(_describe_conflict(matches))
        if not matches:
            self._raise_unknown(kind, name)
        if matches[0].name.endswith(":") and not matches[0].argument:
            raise ConfigError(f"env '{name}' needs a name after the colon, as in '{name}<name>'")
        return matches[0]

    def make_protocol(
        self,
        env: Entry,
        name: str,
        settings: Mapping[str, Any],
        env_settings: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make the protocol `name`, with the environment's tools if it takes them and has none."""
        return self.get("protocol", name).make(
            **self.offer_tools(env, name, settings, env_settings or {})
        )

    def offer_tools(
        self,
        env: Entry,
        name: str,
        settings: Mapping[str, Any],
        env_settings: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The settings of the protocol `name`, with the environment's tools in the same case."""
        takes_tools = has_setting(self.get("protocol", name).load(), "tools")
        if not takes_tools or "tools" in settings or not (tools := env.list_tools(env_settings)):
            return dict(settings)
        return {"tools": [dict(tool) for tool in tools], **settings}

    def names(self, kind: str) -> tuple[str, ...]:
        """All names that `get` resolves, sorted; names in conflict appear as `plugin:name`."""
        plain = [entry.name for entry in self._of(kind)]
        return tuple(
            sorted(e.name if plain.count(e.name) == 1 else e.qualified for e in self._of(kind))
        )

    def spellings(self, kind: str) -> tuple[str, ...]:
        """Every plain and qualified way to write a name of `kind`, conflicting ones included."""
        spellings: set[str] = set()
        for entry in self._of(kind):
            owner = entry.owner
            plugins = {owner.name, owner.distribution or owner.name}
            plugins |= {re.sub(r"\W", "_", plugin) for plugin in plugins}
            spellings |= {entry.name, *(f"{plugin}:{entry.name}" for plugin in plugins)}
        return tuple(sorted(spellings))

    def entries(self) -> tuple[Entry, ...]:
        """Every entry, in order of registration."""
        return self._entries

    @property
    def conflicts(self) -> tuple[str, ...]:
        """One sentence per name that several plugins offer; the plain name is refused."""
        every = self._entries
        groups = ([o for o in every if (o.kind, o.name) == (e.kind, e.name)] for e in every)
        return tuple(dict.fromkeys(_describe_conflict(group) for group in groups if len(group) > 1))

    @property
    def changes(self) -> tuple[str, ...]:
        """One sentence per plugin that is other code now than in the run it is for."""
        return tuple(filter(None, (one.find_change(self.owners) for one in self.recorded)))

    @property
    def news(self) -> tuple[str, ...]:
        """Sentences for the user: plugins that are not loaded, and changed ones."""
        failed = (f"not loaded: {failure}" for failure in self.failures)
        return (*failed, *(f"changed: {change}" for change in self.changes))

    def explain_absence(self, kind: str, name: str) -> str:
        """Lines to print below an unknown name: failed plugins, and who provided it in the run."""
        lines = [f"Not loaded: {failure}" for failure in self.failures]
        lines += [
            f"The run had it from {record.owner}. To get it back: {record.way_back}"
            for record in self.recorded
            if record.offers(kind, name)
        ]
        return "".join(f"\n{line}" for line in lines)

    def provenance(self) -> list[dict[str, Any]]:
        """One JSON-able record per loaded plugin: who it is, the hash of its code, its names."""
        return [
            {
                "plugin": owner.name,
                **{key: one for key, one in asdict(owner).items() if key != "name"},
                "sha256": hash_owner(owner),
                "names": {
                    kind: [entry.name for entry in entries]
                    for kind in HOOKS
                    if (entries := [e for e in self._of(kind) if e.owner is owner])
                },
            }
            for owner in self.owners
        ]

    def _of(self, kind: str) -> list[Entry]:
        if kind not in HOOKS:
            raise ValueError(f"no plugin kind {kind!r}; kinds: {', '.join(HOOKS)}")
        return [entry for entry in self._entries if entry.kind == kind]

    def _match(self, kind: str, name: str) -> list[Entry]:
        entries = self._of(kind)
        if plain := [entry for entry in entries if entry.name == name]:
            return plain
        head, _, rest = name.partition(":")
        if not rest:
            return []
        theirs = [entry for entry in entries if entry.owner.answers_to(head)]
        if exact := [entry for entry in theirs if entry.name == rest]:
            return exact
        scheme, _, argument = rest.partition(":")
        under_own = [e for e in theirs if argument and e.name == f"{scheme}:"]
        if under_own:
            return [replace(entry, argument=argument) for entry in under_own]
        return [replace(entry, argument=rest) for entry in entries if entry.name == f"{head}:"]

    def _raise_unknown(self, kind: str, name: str) -> NoReturn:
        head, colon, rest = name.partition(":")
        known = [entry.name for entry in self._of(kind)]
        if colon and any(owner.answers_to(head) for owner in self.owners):
            theirs = [e.qualified for e in self._of(kind) if e.owner.answers_to(head)]
            hint = suggest(name, theirs, "It registers none.")
            text = f"plugin '{head}' has no {kind} {rest!r}.{hint}"
        else:
            text = f"unknown {kind} {name!r}.{suggest(name, known, 'None is registered.')}"
            text += NOT_FOUND
        raise UnknownNameError(text + self.explain_absence(kind, name))


def describe_error(error: BaseException) -> str:
    """`ValueError: the text`, on one line as far as the text is."""
    try:
        text = str(error)
    except Exception:  # somebody's own `__str__`
        text = "(its __str__ fails)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def raising_of(
    what: str, kind: type[SearchRLError] = PluginError, advice: str = ""
) -> Iterator[None]:
    """A context in which an error of foreign code becomes a `kind`, between `what` and `advice`."""
    try:
        yield
    except SearchRLError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
        raise kind(f"{what} {describe_error(error)}{advice}") from error


def _describe_conflict(entries: Sequence[Entry]) -> str:
    first = entries[0]
    owners = " and ".join(f"{entry.owner} ({entry.where})" for entry in entries)
    choices = " or ".join(f"'{entry.qualified}'" for entry in entries)
    return f"{first.kind} '{first.name}' is registered by {owners}. Neither wins; use {choices}."
