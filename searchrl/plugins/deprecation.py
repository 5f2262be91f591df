"""What of the plugin API is on its way out, said at the author's line.

Owns the warning's class and how it is collected while a plugin loads. To deprecate a hook or its
argument, mark its hookspec: `@hookspec(warn_on_impl=SearchRLDeprecationWarning("…"))`; pluggy gives
the warning the line of the plugin's function. For an argument of `register`, warn in
`registration.Collector` with the line it knows. Nothing is deprecated at present.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class SearchRLDeprecationWarning(FutureWarning):
    """A plugin uses something that a later plugin API will not have; says what to use instead.

    A `FutureWarning`, since Python hides a `DeprecationWarning` outside `__main__`: the one who
    runs a plugin may be the only one to tell its author.
    """


@dataclass(frozen=True, slots=True)
class Deprecation:
    """One use of something deprecated, and the plugin's line."""

    plugin: str
    message: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"plugin {self.plugin} ({self.file}:{self.line}) {self.message}"


@contextmanager
def collecting(plugin: str, into: list[Deprecation]) -> Iterator[None]:
    """Note what is deprecated in the block, then warn of it, and of all else, as usual.

    It is noted whatever the warning filters are; what they turn into an error is raised at the end.
    """
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", SearchRLDeprecationWarning)
            yield
    finally:
        into += [
            Deprecation(plugin, str(one.message), one.filename, one.lineno)
            for one in caught
            if issubclass(one.category, SearchRLDeprecationWarning)
        ]
        for one in caught:
            warnings.warn_explicit(
                one.message, one.category, one.filename, one.lineno, source=one.source
            )
