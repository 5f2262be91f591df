"""Criteria of generators: G1 to G3, what can be said of one without a model.

Owns the check that a generator can be called and has the methods of the contract. Whether it
samples what it says it does, only a model can show: the suite in the repository's
`tests/engine/test_generators.py` holds ours to that, and `searchrl bench` runs any.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from searchrl.plugins.registry import Entry, Registry
from searchrl.plugins.signatures import find_signature_problem
from searchrl.testing.criteria import Criterion, NotApplicable, Problem, criterion

METHODS: Mapping[str, tuple[str, ...]] = {
    "open": ("prompt_ids", "n", "rng_keys"),
    "submit": ("handle", "append_ids", "stops", "max_tokens"),
    "poll": (),
    "close": ("handle",),
    "sync": ("policy",),
}
"""The methods of a generator and what they are called with."""


@dataclass(frozen=True, slots=True)
class GeneratorSubject:
    """One registered generator. It is never made: that takes a model."""

    registry: Registry
    entry: Entry
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, registry: Registry, entry: Entry, settings: Mapping[str, Any] | None = None
    ) -> GeneratorSubject:
        """The subject of a registration; raises `ConfigError` for settings it does not take."""
        return cls(registry, entry, entry.ensure_settings(settings or {}))


@criterion(
    "G1",
    "can be called as a run calls it",
    "A run makes it as factory(policy, sampling, num_slots=…, max_length=…, **settings).",
)
def can_be_called(subject: GeneratorSubject) -> Iterator[Problem]:
    """G1."""
    factory = subject.entry.load()
    if problem := find_signature_problem("generator", factory):
        yield Problem(problem, "take these arguments; further ones are its settings", factory)


@criterion(
    "G2",
    "has the methods of a generator",
    "The rollout driver opens dialogues, submits turns, polls for finished ones and closes them.",
)
def has_methods(subject: GeneratorSubject) -> Iterator[Problem]:
    """G2."""
    made = subject.entry.load()
    if not inspect.isclass(made):
        raise NotApplicable(
            "its factory is a function; only a run with a model shows what it makes"
        )
    for name, arguments in METHODS.items():
        method = getattr(made, name, None)
        mend = f"see searchrl.engine.sampling.generator.Generator.{name}"
        if not callable(method):
            yield Problem(f"it has no method {name}({', '.join(arguments)})", mend, made)
            continue
        try:
            inspect.signature(method).bind(None, *arguments)
        except TypeError as error:
            yield Problem(
                f"{name}{inspect.signature(method)} cannot be called as "
                f"{name}({', '.join(arguments)}): {error}",
                mend,
                method,
            )


@criterion(
    "G3",
    "samples what it says it samples",
    "Log-probs that are not the sampler's own make every update wrong.",
)
def samples_truly(subject: GeneratorSubject) -> Iterator[Problem]:
    """G3."""
    raise NotApplicable(
        "it takes a model; try `searchrl bench --set engine.generator=NAME`, and compare its "
        "log-probs with those of the generator `hf`"
    )
    yield  # a criterion is a generator function


GENERATOR_CRITERIA: tuple[Criterion[GeneratorSubject], ...] = (
    can_be_called,
    has_methods,
    samples_truly,
)
"""Everything a generator is held to without a model, in order."""
