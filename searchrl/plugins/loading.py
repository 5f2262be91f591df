"""Loads plugins: discovery, isolation and the check of what they register.

Every plugin, the built-ins included, is loaded alone and registers everything or nothing; what
fails is recorded. Nothing in the working directory is imported unless it is named.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import os
import re
import shlex
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pluggy

from searchrl import __version__
from searchrl.envs.gym_ids import adopt_envs, register_gym_id
from searchrl.errors import PluginError, suggest, suggest_path
from searchrl.hookspecs import HOOKS, PLUGIN_API, PROJECT
from searchrl.plugins.provenance import (
    Origin,
    Owner,
    PluginRecord,
    canonical,
    find_file,
    hash_bytes,
)
from searchrl.plugins.registration import Collector, PluginFault, list_gym_envs
from searchrl.plugins.registry import Entry, PluginFailure, Registry, describe_error

BUILTINS = "searchrl.plugins.builtins"
_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


_Candidate = tuple[Owner, Callable[[], object]]
"""A plugin not loaded yet: who it claims to be, and how to get it."""


class Given(Protocol):
    """A plugin that is an object, and says who it is."""

    @property
    def owner(self) -> Owner:
        """The owner of what its hooks register."""


class _HookRaised(Exception):
    """A hook, whose name is the text, raised; the cause is what."""


class _MissingSource(PluginError):
    """A `--plugin` that does not exist: a mistake of the user, not of a plugin."""


def load_plugins(
    files: Sequence[str] = (),
    *,
    strict: bool = False,
    must_load: bool = False,
    entry_points: bool = True,
    recorded: Sequence[PluginRecord] = (),
    permit: Callable[[Registry], Mapping[str, str]] = lambda installed: {},
    given: Given | None = None,
) -> Registry:
    """Load the built-ins, the installed plugins and `files`; return what they offer.

    `files` are paths of Python files or names of importable modules. A plugin that fails is left
    out and listed in `Registry.failures`. `must_load` raises `PluginError` for it instead if it is
    one of `files`, which somebody asked for; `strict` for every plugin, and for a name that two of
    them offer. A file or module that does not exist always raises. `recorded` are the plugins of an
    earlier run: messages then say what is missing or changed since that run. `permit` is called
    with the installed plugins before any of `files` is loaded. It raises for what must not be, and
    returns the sources that a run folder named, with the hash that each must have (see
    `searchrl.trust`). `given` is loaded last.
    """
    builtin = Owner("searchrl", Origin.BUILTIN, "searchrl", __version__)
    installed: list[_Candidate] = [(builtin, lambda: importlib.import_module(BUILTINS))]
    if entry_points and os.environ.get("SEARCHRL_NO_INSTALLED_PLUGINS", "0") in ("", "0"):
        installed += _find_entry_points()
    entries: list[Entry] = []
    failures: list[PluginFailure] = []
    loaded: dict[int, Owner] = {}
    pinned: dict[str, str] = {}

    def candidates() -> Iterator[_Candidate]:
        yield from installed
        pinned.update(permit(Registry(tuple(entries), tuple(loaded.values()))))
        yield from _find_named(files, [owner.name for owner, _ in installed], pinned)
        if given is not None:
            yield given.owner, lambda: given

    for owner, load in candidates():
        if owner.file and owner.file in {other.file for other in loaded.values()}:
            # The file of an installed plugin, named once more: the same plugin, not a rival.
            continue
        try:
            # What a plugin prints while it loads is not the output of the command.
            with contextlib.redirect_stdout(sys.stderr):
                plugin = load()
            if first := loaded.get(id(plugin)):
                if owner.origin is Origin.ENTRY_POINT:
                    raise PluginFault(f"is the same module as {first}; keep one entry point")
                continue
            owner = _identify(plugin, owner)
            entries += _call_hooks(plugin, owner) or list_gym_envs(owner, entries)
            loaded[id(plugin)] = owner
        except _MissingSource:
            raise
        # SystemExit too: a plugin that exits at import must not end the program.
        except (Exception, SystemExit) as error:
            if owner.origin is Origin.BUILTIN:
                raise
            failure = _describe_failure(owner, error)
            if strict or (must_load and (failure.source or owner.origin is Origin.PYTHON)):
                check = f"searchrl check {shlex.quote(failure.source)}"
                again = f"\nNothing was started: it was asked for. Fix it, then try: {check}"
                raise PluginError(f"{failure}{again if failure.source else ''}") from error
            failures.append(failure)
    owners = tuple(loaded.values())
    registry = Registry(tuple(entries), owners, tuple(failures), tuple(recorded), frozenset(pinned))
    if strict and registry.conflicts:
        raise PluginError("\n".join(registry.conflicts))
    for entry in entries:  # as `import searchrl` does for ours
        is_plain = entry.name in registry.names("env") and ":" not in entry.name
        is_known = entry.owner.origin in (Origin.BUILTIN, Origin.PYTHON)
        if entry.kind == "env" and is_plain and not is_known:
            register_gym_id(entry.name, tuple(filter(None, (entry.owner.source,))))
    return registry


def _find_entry_points() -> list[_Candidate]:
    """One candidate per entry point, named after its distribution (`dist.entry` if it has many)."""
    listed = importlib.metadata.entry_points(group=PROJECT)
    listed_by = [(ep.dist.name if ep.dist else ep.name, ep) for ep in listed]
    names = [dist_name for dist_name, _ in listed_by]
    candidates: list[_Candidate] = []
    for dist_name, entry_point in listed_by:
        name = dist_name if names.count(dist_name) == 1 else f"{dist_name}.{entry_point.name}"
        version = entry_point.dist.version if entry_point.dist else ""
        candidates.append((Owner(name, Origin.ENTRY_POINT, dist_name, version), entry_point.load))
    return candidates


def _find_named(
    sources: Sequence[str], taken: Sequence[str], pinned: Mapping[str, str]
) -> list[_Candidate]:
    """One candidate per `--plugin` source, each once; names made unique by a number."""
    used = {canonical(name) for name in taken}
    candidates: list[_Candidate] = []
    for source in dict.fromkeys(map(_find_file, sources)):
        path = Path(source)
        is_file = path.is_absolute()
        stem = path.stem if is_file else source
        name, number = stem, 2
        while canonical(name) in used:
            name, number = f"{stem}-{number}", number + 1
        used.add(canonical(name))
        if is_file:
            owner = Owner(name, Origin.FILE, file=source, source=source)
            candidates.append((owner, functools.partial(_load_file, path, pinned.get(source))))
        else:
            owner = Owner(name, Origin.MODULE, source=source)
            candidates.append((owner, functools.partial(_load_module, source)))
    return candidates


def absolute_source(source: str) -> str:
    """The absolute path of a plugin file (a run remembers it), or a module name as it is."""
    is_file = source.endswith(".py") or re.search(r"[/\\]", source)
    return str(Path(os.path.expanduser(source)).resolve()) if is_file else source


def _find_file(source: str) -> str:
    """The absolute path of a plugin file that exists, or the module name as it is."""
    path = Path(absolute_source(source))
    if path.is_absolute() and os.path.isfile(path):
        return str(path)
    if not path.is_absolute() and _MODULE.fullmatch(source):
        return source
    what = f"{path} is a folder" if os.path.isdir(path) else f"there is no file {path}"
    raise _MissingSource(
        f"--plugin '{source}': {what}; expected a Python file, such as `searchrl new env mine` "
        f"writes, or a module's name.{suggest_path(source)}"
    )


def _load_file(path: Path, pinned: str | None = None) -> ModuleType:
    """Execute a plugin file; the bytes that run are the bytes that provenance hashes.

    If they must have the hash `pinned`, those of another file do not run. The module's name depends
    on the path alone: objects are unpickled in other processes, and an unchanged file runs once.
    """
    data = path.read_bytes()
    digest = hash_bytes(data)
    if pinned is not None and digest != pinned:
        raise PluginFault("changed while it was being looked at, so it was not run; start again")
    stem = re.sub(r"\W", "_", path.stem)
    name = f"searchrl_plugin_{stem}_{hash_bytes(str(path).encode())[:8]}"
    known = sys.modules.get(name)
    if known is not None and vars(known)["__sha256__"] == digest:
        return known
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = types.ModuleType(name)
    module.__spec__ = importlib.util.spec_from_file_location(name, path, loader=loader)
    module.__file__ = str(path)
    vars(module)["__sha256__"] = digest
    sys.modules[name] = module
    try:
        # dont_inherit: this file's own __future__ imports must not change the plugin's meaning.
        exec(compile(data, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        beside = Path(f"{name}.py")
        hint = f" Did you mean '--plugin {beside}'?" if os.path.isfile(beside) else ""
        text = f"--plugin {name}: there is no module '{error.name}'.{hint}"
        raise _MissingSource(text) from error


def _identify(plugin: object, owner: Owner) -> Owner:
    """Complete the owner record of an imported plugin and check its API number."""
    if owner.origin is Origin.PYTHON:
        return owner
    file, attributes = owner.file or find_file(plugin), getattr(plugin, "__dict__", {})
    version = (
        attributes.get("__version__", "") if isinstance(attributes.get("__version__"), str) else ""
    )
    if owner.origin is Origin.FILE:
        owner = replace(owner, version=version, sha256=attributes["__sha256__"])
    elif owner.origin is Origin.MODULE:
        found = importlib.metadata.packages_distributions().get(owner.source.partition(".")[0])
        dist = importlib.metadata.distribution(found[0]) if found else None
        distribution, version = (dist.name, dist.version) if dist else ("", version)
        owner = replace(owner, distribution=distribution, version=version)
    return replace(owner, file=file, api=_read_api(plugin))


def _read_api(plugin: object) -> int | None:
    """The API number that a plugin declares; None if it declares none, which is fine."""
    if not hasattr(plugin, "PLUGIN_API"):
        return None
    declared = plugin.PLUGIN_API
    if type(declared) is int and 1 <= declared <= PLUGIN_API:
        return declared
    known = f"searchrl {__version__} takes 1 to {PLUGIN_API}"
    raise PluginFault(f"declares PLUGIN_API = {declared!r}; {known} (pip install --upgrade …)")


def _call_hooks(plugin: object, owner: Owner) -> list[Entry]:
    """Call every hook of one plugin and return all it registers, or raise and return nothing."""
    hooks = _find_hooks(plugin)
    entries: list[Entry] = []
    for kind, hook in HOOKS.items():
        if hook not in hooks:
            continue
        collector = Collector(kind, owner)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                for function in hooks[hook]:
                    function(register=collector)
        except PluginFault:
            raise
        except (Exception, SystemExit) as error:
            raise _HookRaised(hook) from error
        finally:
            collector.is_open = False
        if collector.fault:
            # The plugin caught the error itself; still, half of a plugin must not load.
            raise collector.fault
        entries += collector.entries
    return entries


def _find_hooks(plugin: object) -> dict[str, list[Callable[..., object]]]:
    """The hooks of a plugin; refuses misspelt, unmarked and uncallable hook functions."""
    manager = pluggy.PluginManager(PROJECT)
    hooks: dict[str, list[Callable[..., object]]] = {}
    has_hooks = False
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None and name not in HOOKS.values():
            continue
        function = getattr(plugin, name)
        if options is None:
            # A function imported from elsewhere may have the name of a hook.
            is_function = isinstance(function, types.FunctionType)
            if is_function and function.__module__ == getattr(plugin, "__name__", None):
                raise PluginFault(f"does not mark {name} with @hookimpl", _line_of(function))
            continue
        has_hooks = True
        hook = options.get("specname") or name
        signature = inspect.signature(function)
        if hook not in HOOKS.values():
            problem = f"has an unknown hook '{hook}'.{suggest(hook, HOOKS.values())}"
        elif inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            problem = f"has {name} as a coroutine or generator, not a plain function"
        elif [str(p).partition(":")[0] for p in signature.parameters.values()] != ["register"]:
            problem = f"defines {name}{signature}; expected {name}(register)"
        else:
            hooks.setdefault(hook, []).append(function)
            continue
        raise PluginFault(problem, _line_of(function))
    is_file = isinstance(plugin, ModuleType) and "__sha256__" in vars(plugin)
    if not has_hooks and not (is_file and adopt_envs(plugin)):  # type: ignore[arg-type]
        raise PluginFault(
            "has no hooks: define a function such as register_rewards(register) and mark it with "
            "@searchrl.hookimpl (or a class of gymnasium.Env, for --env gym:NAME-v0)"
        )
    return hooks


def _describe_failure(owner: Owner, error: BaseException) -> PluginFailure:
    if isinstance(error, PluginFault):
        message, file, line = str(error), owner.file, error.line
        return PluginFailure(owner.name, owner.source, message, file, line, owner.version)
    stage = "at import"
    if isinstance(error, _HookRaised) and error.__cause__ is not None:
        stage, error = f"in {error}", error.__cause__
    message = f"raised {stage}: {describe_error(error)}"
    detail = "".join(traceback.format_exception(error))
    place = _find_place(error, owner.file)
    return PluginFailure(owner.name, owner.source, message, *place, owner.version, detail)


def _find_place(error: BaseException, file: str) -> tuple[str, int]:
    """File and line of the deepest frame in the plugin's file, else of the first foreign one."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 0
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    if inside := [frame for frame in frames if frame[0] == file]:
        return inside[-1]
    library = str(Path(importlib.__file__).parent)
    passed = (__file__, "<frozen", library, str(Path(pluggy.__file__).parent))
    return next((frame for frame in frames if not frame[0].startswith(passed)), (file, 0))


def _line_of(function: Callable[..., object]) -> int:
    inner = inspect.unwrap(function)
    inner = inner.__func__ if isinstance(inner, types.MethodType) else inner
    return inner.__code__.co_firstlineno if isinstance(inner, types.FunctionType) else 0
