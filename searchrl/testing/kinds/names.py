"""Criterion of every name, whatever its kind: N1."""

from __future__ import annotations

from collections.abc import Iterator

from searchrl.plugins.provenance import Origin
from searchrl.testing.criteria import Problem, criterion
from searchrl.testing.kit.subject import Subject


@criterion("N1")
def _has_its_own_name(subject: Subject) -> Iterator[Problem]:
    entry = subject.entry
    others = [one for one in subject.registry.entries() if one.owner.origin is Origin.BUILTIN]
    is_theirs = (entry.kind, entry.name) in {(other.kind, other.name) for other in others}
    if is_theirs and entry.owner.origin is not Origin.BUILTIN:
        yield Problem(f"{entry.kind} '{entry.name}' is built in; the plain name is refused")
