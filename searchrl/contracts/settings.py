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


def find_mark(*annotations: Any) -> NeedsTrust | None:
    """The first mark of types, also inside of unions and lists; None if they have none."""
    for one in annotations:
        if mark := one if isinstance(one, NeedsTrust) else find_mark(*get_args(one)):
            return mark
    return None
