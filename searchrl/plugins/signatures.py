"""What a factory's signature says: whether SearchRL can call it, and which settings it takes.

Owns the check of settings by name and by annotation, the same for built-in and other plugins, and
the list of what SearchRL itself passes to each kind. A setting without an annotation, or with one
that cannot be resolved, is passed on unchanged. So is an object that no config file could hold.
Callers: `registry` and `registration`. pydantic is imported only when a setting is checked.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from searchrl.contracts import RetrieverFactory
from searchrl.errors import ConfigError, suggest

_PROBES: Mapping[str, tuple[tuple[object, ...], Mapping[str, object]]] = {
    "env": ((), {"protocol": None, "retriever": None}),
    "retriever": (((),), {}),
    "tracker": ((None,), {}),
    "generator": ((None, None), {"num_slots": None, "max_length": None}),
    "policy": ((None,), {}),
}
"""The arguments SearchRL passes to a kind's factory, besides its settings."""

_EXPECTED = {
    "env": "factory(*, protocol, retriever, **settings) -> gymnasium.Env",
    "reward": "factory() or factory(judge) -> reward; pass a class or function that makes it",
    "retriever": "factory(passages, **settings)",
    "tracker": "factory(run_dir, **settings)",
    "generator": "factory(policy, sampling, *, num_slots, max_length, **settings)",
    "policy": "factory(space, **settings) -> torch.nn.Module",
}


def find_signature_problem(kind: str, factory: Callable[..., Any]) -> str:
    """Say why SearchRL could not call `factory`, or "" if its signature fits the kind.

    Only what SearchRL itself passes is checked: required settings may be missing here.
    """
    args, keywords = _PROBES.get(kind, ((), {}))
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):  # some C callables have none: only the call can show a fault
        return ""
    try:
        if kind == "reward":
            signature.bind(**({"judge": None} if takes_judge(factory) else {}))
        else:
            signature.bind_partial(*args, **keywords)
    except TypeError as error:
        return f"the factory has signature {signature}: {error}. Expected {_EXPECTED[kind]}"
    return ""


def passed_keywords(kind: str) -> tuple[str, ...]:
    """Names of the keyword arguments that SearchRL itself passes to a factory of `kind`."""
    return ("judge",) if kind == "reward" else tuple(_PROBES.get(kind, ((), {}))[1])


def check_settings(
    kind: str, name: str, factory: Callable[..., Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return `settings` converted to the factory's annotations: a number for a `str` becomes text.

    Raises `ConfigError` for an unknown setting, with near matches, and for every wrong value.
    """
    args, keywords = _PROBES.get(kind, ((), {}))
    # What SearchRL passes by position (a retriever's passages) is no setting.
    parameters = dict(list(_parameters(factory).items())[len(args) :])
    passed = {"judge"} if kind == "reward" else set()
    passed = {*keywords, "name"} if kind == "env" else passed
    is_open = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [n for n, p in parameters.items() if p.kind in named and n not in passed]
    for key in settings:
        if key in passed or (key not in known and not is_open):
            hint = suggest(key, known, "It takes no settings.")
            raise ConfigError(f"{kind} '{name}' has no setting {key!r}.{hint}")
    checked, problems = dict(settings), []
    for key, value in settings.items():
        parameter = parameters.get(key)
        if parameter is None or value is parameter.default or not _is_plain(value):
            continue
        try:
            checked[key] = _convert(value, _resolve(factory, key, parameter.annotation))
        except ValueError as error:
            problems.append(f"{kind} '{name}': cannot use {key}{error}")
    if problems:
        raise ConfigError("\n".join(problems))
    return checked


def explain_settings(
    kind: str,
    name: str,
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    error: Exception,
) -> str:
    """Say which setting is unknown or missing if that is why a call of the factory failed, or "".

    For factories that pass `**settings` on, to a parent's `__init__`, say: only the call shows it.
    """
    text = str(error) if isinstance(error, TypeError) else ""
    args, keywords = _PROBES.get(kind, ((), {}))
    passed = {*keywords, "name"}
    known = {n: p for n, p in list(_all_parameters(factory).items())[len(args) :]}
    names = [n for n in known if n not in passed]
    if found := re.search(r"unexpected keyword argument '(\w+)'", text):
        if found[1] in settings and found[1] not in known:
            hint = suggest(found[1], names, "It takes no settings.")
            return f"{kind} '{name}' has no setting {found[1]!r}.{hint}"
        return ""
    found = re.search(r"missing \d+ required (?:keyword-only|positional) arguments?: (.+)", text)
    missing = re.findall(r"'(\w+)'", found[1]) if found else []
    if not missing or not set(missing) <= set(names) - set(settings):
        return ""
    unknown = [key for key in settings if key not in known]
    near = {key: suggest(key, missing, "") for key in unknown}
    hint = "".join(f" You wrote {key!r}.{text}" for key, text in near.items() if "mean" in text)
    needs = " and ".join(map(repr, missing))
    example = f"--set {kind}.{missing[0]}=…" if kind in ("env", "retriever", "protocol") else ""
    return f"{kind} '{name}' needs the setting {needs}.{hint or f' Give it: {example}'}".rstrip()


def _all_parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The named parameters of a factory; of a class that takes `**settings`, its parents' too."""
    while isinstance(factory, functools.partial):
        factory = factory.func
    found = dict(_parameters(factory))
    classes = inspect.getmro(factory) if isinstance(factory, type) else ()
    for parent in classes:
        if "__init__" in vars(parent) and parent is not object:
            own = inspect.signature(vars(parent)["__init__"]).parameters
            found |= {n: p for n, p in list(own.items())[1:] if n not in found}
            if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in own.values()):
                break
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {n: p for n, p in found.items() if p.kind not in variadic}


def find_retriever_settings(factory: Callable[..., Any]) -> list[str]:
    """The settings that hold another retriever: those annotated `RetrieverFactory`, or None."""
    names = []
    for name, parameter in _all_parameters(factory).items():
        kind = _resolve(factory, name, parameter.annotation)
        if RetrieverFactory in (kind, *typing.get_args(kind)):
            names.append(name)
    return names


def takes_judge(factory: Callable[..., Any]) -> bool:
    """Whether a reward component is made with a judge: its factory has a parameter of this name."""
    return has_setting(factory, "judge")


def has_setting(factory: Callable[..., Any], name: str) -> bool:
    """Whether a factory has a parameter of this name."""
    return name in _parameters(factory)


def _parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        anything = inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD)
        return {"settings": anything}


def _is_plain(value: object) -> bool:
    """Whether a config file could hold it; other objects of Python callers are not checked."""
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _resolve(factory: Callable[..., Any], name: str, annotation: Any) -> Any:
    """The type an annotation means; `Any` for none, or one that cannot be resolved."""
    if annotation is inspect.Parameter.empty:
        return Any
    while isinstance(factory, functools.partial):
        factory = factory.func
    target: Any = inspect.unwrap(factory)
    if isinstance(target, type):
        module = sys.modules.get(target.__module__)
        # The parameters may be those of a parent's `__init__`, written in another module.
        made_by = getattr(target, "__init__")  # noqa: B009  # mypy takes it for an instance's
        known = getattr(made_by, "__globals__", vars(module) if module else {})
    else:
        is_function = hasattr(target, "__globals__") or inspect.ismethod(target)
        called = target if is_function else type(target).__call__
        known = getattr(inspect.unwrap(called), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, globalns=dict(known), include_extras=True)[name]
    except Exception:  # an annotation may be anything, such as a name for type checkers only
        return Any


def _convert(value: Any, kind: Any) -> Any:
    """`value` as a `kind`; ValueError with the place inside it, the value and what is wrong."""
    from pydantic import ValidationError

    adapter = _make_adapter(kind)
    if adapter is None:
        return value
    try:
        converted = _stored(adapter.validate_python(value))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, inner = "", value
        for part in first["loc"]:
            if not _holds(inner, part):
                break  # this part names one of several types, not a place in the value
            place, inner = f"{place}.{part}", inner[part]
        raise ValueError(f"{place} = {inner!r}: {first['msg']}") from error
    if isinstance(value, bool) and isinstance(converted, int | float) and converted is not value:
        raise ValueError(f" = {value!r}: Input should be a number")
    return converted


def _stored(value: Any) -> Any:
    """`value` with lists in place of iterators: many instances use the same settings.

    pydantic makes an iterator for `Iterable[str]`; only the first instance could read it.
    """
    if isinstance(value, Iterator) or type(value) is list:
        return [_stored(item) for item in value]
    return {k: _stored(v) for k, v in value.items()} if type(value) is dict else value


def _make_adapter(kind: Any) -> Any:
    """A pydantic adapter; None for types it cannot check, such as a `typing.Protocol`."""
    from pydantic import ConfigDict, TypeAdapter

    # A folder may be called 2024, which YAML reads as a number.
    rules = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True)
    for config in (rules, None):  # a dataclass has rules of its own and takes none
        with contextlib.suppress(Exception):
            return TypeAdapter(kind, config=config)
    return None


def _holds(container: Any, part: int | str) -> bool:
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list) and isinstance(part, int) and part < len(container)
