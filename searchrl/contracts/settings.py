"""Types of settings that a run folder of somebody else may not decide.

A plugin annotates its settings with them: `def make(passages, *, url: Address)`. A part with a
setting that is an `Address` or a `VariableName` asks a server by its name alone, so its
name needs permission, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, get_args


@dataclass(frozen=True, slots=True)
class NeedsTrust:
    """Mark of a type, with a word for its values in messages."""

    what: str


FilePath = Annotated[str, NeedsTrust("the path")]
"""A file or folder that is read or written."""
Weights = Annotated[str, NeedsTrust("the model")]
"""A folder with a model, or the id of one on a hub."""
Address = Annotated[str, NeedsTrust("the address")]
"""A server, a host or a URL."""
Command = Annotated[str, NeedsTrust("the command")]
"""A command of the system."""
VariableName = Annotated[str, NeedsTrust("the variable")]
"""The name of an environment variable, such as the one that holds a key."""


def find_mark(annotation: Any) -> NeedsTrust | None:
    """The mark of a type, also inside of unions and lists; None if it has none."""
    if isinstance(annotation, NeedsTrust):
        return annotation
    inner = [*get_args(annotation), *getattr(annotation, "__metadata__", ())]
    return next(filter(None, map(find_mark, inner)), None)
