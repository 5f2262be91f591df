"""The criterion of generators, G1: what can be said of one without a model.

Whether it samples what it says it does, only a model can show: the suite in the repository's
`tests/engine/sampling` holds ours to that, and `searchrl bench` runs any.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kit.subject import Subject

METHODS = {
    "open": ("prompt_ids", "n", "rng_keys"),
    "submit": ("handle", "append_ids", "stops", "max_tokens"),
    "poll": (),
    "close": ("handle",),
    "sync": ("policy",),
}
"""The methods of a generator and what they are called with."""


@criterion("G1")
def _has_methods(subject: Subject) -> Iterator[Problem]:
    made = subject.entry.load()
    if not inspect.isclass(made):
        raise NotApplicable("its factory is a function; only a run shows what it makes")
    for name, arguments in METHODS.items():
        method = getattr(made, name, None)
        called = f"{name}({', '.join(arguments)})"
        fix = f"see searchrl.engine.sampling.generator.Generator.{name}"
        if not callable(method):
            yield Problem(f"it has no method {called}", made, fix)
            continue
        try:
            inspect.signature(method).bind(None, *arguments)
        except TypeError as error:
            yield Problem(f"{name}() cannot be called as {called}: {error}", method, fix)
