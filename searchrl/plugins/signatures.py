"""Signatures of factories: whether SearchRL can call one, and which settings it takes.

A setting without an annotation, or with one that cannot be resolved, is passed on unchanged. So is
an object that no config file could hold.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from searchrl.contracts import RetrieverFactory
from searchrl.contracts.retrieving import NamedFactory
from searchrl.errors import ConfigError, suggest

_PASSED: Mapping[str, tuple[int, tuple[str, ...], str]] = {
    "env": (0, ("protocol", "retriever"), "factory(*, protocol, retriever, **settings)"),
    "wrapper": (1, (), "factory(env, **settings)"),
    "reward": (0, ("judge", "normalization"), "factory(), or factory(judge, normalization='N1')"),
    "retriever": (1, (), "factory(passages, **settings)"),
    "tracker": (1, (), "factory(run_dir, **settings)"),
    "backend": (1, (), "factory(make_worker, **settings)"),
    "generator": (
        2,
        ("num_slots", "max_length"),
        "factory(policy, sampling, *, num_slots, max_length, **settings)",
    ),
}
"""Number of arguments that SearchRL passes by position, names of the others, and the form."""

_NAMED = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def find_signature_problem(kind: str, factory: Callable[..., Any]) -> str:
    """Say why SearchRL could not call `factory` with what it passes itself, or ""."""
    count, names, form = _PASSED.get(kind, (0, (), ""))
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some C callables have none: only the call can show a fault
        return ""
    try:
        if kind == "reward":
            signature.bind(**({"judge": None} if has_setting(factory, "judge") else {}))
        else:
            signature.bind_partial(*[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        return f"the factory has signature {signature}: {error}. Expected {form}"
    return ""


def passed_keywords(kind: str) -> tuple[str, ...]:
    """Names of the keyword arguments that SearchRL itself passes to a factory of `kind`."""
    return _PASSED.get(kind, (0, (), ""))[1]


def check_settings(
    kind: str, name: str, factory: Callable[..., Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `settings` converted to the factory's annotations: a number for a `str` becomes text.

    Raises `ConfigError` for an unknown setting, with near matches, for one that is missing, and for
    every wrong value.
    """
    count, names, _ = _PASSED.get(kind, (0, (), ""))
    passed = {*names, "name"} if kind == "env" else {*names}
    parameters, is_open = _find_parameters(factory)
    # What SearchRL passes by position (a retriever's passages) is no setting.
    settable = {key: one for key, one in [*parameters.items()][count:] if key not in passed}
    for key in settings:
        if key in passed or (key not in settable and not is_open):
            hint = suggest(key, settable, "It takes no settings.")
            raise ConfigError(f"{kind} '{name}' has no setting {key!r}.{hint}")
    required = [p for p in [*_parameters(factory).values()][count:] if p.default is p.empty]
    for one in required:
        if one.kind in _NAMED and one.name in settable and one.name not in settings:
            is_section = kind in ("env", "protocol", "retriever", "judge")
            how = f" Give it: --set {kind}.{one.name}=…" if is_section else ""
            raise ConfigError(f"{kind} '{name}' needs the setting {one.name!r}.{how}")
    checked, problems = dict(settings), []
    for key, value in settings.items():
        if key not in settable or value is settable[key].default or not _is_plain(value):
            continue
        try:
            checked[key] = _convert(value, _resolve(factory, key, settable[key].annotation))
        except ValueError as error:
            problems.append(f"{kind} '{name}': cannot use {key}{error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return checked


def find_settings(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The settings of a factory by name; the annotation of one without a type is `Any`."""
    parameters = _find_parameters(factory)[0].items()
    return {
        name: p.replace(annotation=_resolve(factory, name, p.annotation)) for name, p in parameters
    }


def find_retriever_settings(factory: Callable[..., Any]) -> dict[str, bool]:
    """The settings annotated as another retriever's factory, and whether each holds a list."""
    kinds = {name: _alternatives(one.annotation) for name, one in find_settings(factory).items()}
    return {
        name: list[RetrieverFactory] in among
        for name, among in kinds.items()
        if any(one in among for one in (RetrieverFactory, NamedFactory, list[RetrieverFactory]))
    }


def _alternatives(kind: Any) -> list[Any]:
    """The types in a union, or in what `Annotated` marks; else the type itself."""
    if typing.get_origin(kind) in (typing.Annotated, typing.Union, types.UnionType):
        return [one for part in typing.get_args(kind) for one in _alternatives(part)]
    return [kind]


def has_setting(factory: Callable[..., Any], name: str) -> bool:
    """Return True if a factory has a parameter of this name."""
    return name in _parameters(factory)


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some C callables have none
        return {"settings": inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)}


def _makers(factory: Callable[..., Any]) -> list[Any]:
    """The functions that are called: of a class, its `__init__` and those of its parents."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    target = inspect.unwrap(factory)
    if isinstance(target, type):
        inits = (vars(one).get("__init__") for one in target.__mro__ if one is not object)
        return [init for init in inits if init is not None]
    return [target if hasattr(target, "__globals__") else type(target).__call__]


def _find_parameters(
    factory: Callable[..., Any],
) -> tuple[dict[str, inspect.Parameter], bool]:
    """The named parameters of a factory, and whether it takes others.

    Of a class that passes `**settings` on, its parents' are known as well.
    """
    parameters = dict(_parameters(factory))
    is_open = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    made = factory.func if isinstance(factory, functools.partial) else factory
    for init in _makers(made) if is_open and inspect.isclass(made) else ():
        inner = [*inspect.signature(init).parameters.values()][1:]
        parameters = {**{p.name: p for p in inner}, **parameters}
        if not (is_open := any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inner)):
            break
    return {name: p for name, p in parameters.items() if p.kind in _NAMED}, is_open


def _is_plain(value: object) -> bool:
    """Return True if a config file could hold it; other objects are not checked."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _resolve(factory: Callable[..., Any], name: str, annotation: Any) -> Any:
    """The type an annotation means; `Any` for none, or one that cannot be resolved."""
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    # The parameter may be that of a parent's `__init__`, written in another module.
    for maker in (one for one in _makers(factory) if name in one.__annotations__):
        known = getattr(inspect.unwrap(maker), "__globals__", {})
        with contextlib.suppress(Exception):  # it may be a name for type checkers only
            return typing.get_type_hints(holder, globalns=dict(known), include_extras=True)[name]
    return Any


def _convert(value: Any, kind: Any) -> Any:
    """`value` as a `kind`; ValueError with the place inside it, the value and what is wrong."""
    adapter = None
    # A folder may be called 2024, which YAML reads as a number.
    rules = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True)
    for config in (None, rules):  # a dataclass has rules of its own and takes none
        with contextlib.suppress(Exception):
            adapter = TypeAdapter(kind, config=config)
    if adapter is None:  # what pydantic cannot check, such as a `typing.Protocol`
        return value
    try:
        converted = _stored(adapter.validate_python(value))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, inner = "", value
        for part in first["loc"]:
            try:
                inner = inner[part]
            except (LookupError, TypeError):
                break  # this part names one of several types, not a place in the value
            place += f".{part}"
        raise ValueError(f"{place} = {inner!r}: {first['msg']}") from error
    if isinstance(value, bool) and isinstance(converted, int | float) and converted is not value:
        raise ValueError(f" = {value!r}: Input should be a number")
    return converted


def _stored(value: Any) -> Any:
    """`value` with lists in place of the iterators that pydantic makes for `Iterable[str]`."""
    if isinstance(value, Iterator) or type(value) is list:
        return [_stored(item) for item in value]
    return {k: _stored(v) for k, v in value.items()} if type(value) is dict else value
