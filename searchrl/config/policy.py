"""The key `policy`: who plays, by name, and the settings of a policy that a plugin registers.

Owns how the key is read and written, and which names are those of no plugin. Its short form is a
text, and without settings it is stored as one. Callers: the tree, and what reads a configuration
that is not checked yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, PlainSerializer

from searchrl.config.endpoint import endpoint_address
from searchrl.config.sections import Named

MODEL = "model"
"""The language model that `model.name` names."""
_SCRIPTED = "scripted"


def policy_name(value: object) -> str:
    """The name in a `policy` that nobody has checked: a text, or a mapping with a name."""
    name = value.get("name") if isinstance(value, Mapping) else value
    return name if isinstance(name, str) else ""


def is_registered(name: str) -> bool:
    """Whether a policy of this name is one that a plugin registers."""
    is_script = name.partition(":")[0] == _SCRIPTED
    return name != MODEL and not is_script and endpoint_address(name) is None


def _checked(policy: Named) -> Named:
    """Refuse settings of a policy that takes none."""
    if policy.settings and not is_registered(policy.name):
        raise ValueError(
            f"policy '{policy.name}' takes no settings, and {', '.join(policy.settings)} was given;"
            " those of a model are in the section `model`"
        )
    return policy


def _written(policy: Named) -> str | dict[str, Any]:
    """A text if there is nothing but the name: so it was written before settings existed."""
    return policy.model_dump() if policy.settings else policy.name


PolicyName = Annotated[Named, AfterValidator(_checked), PlainSerializer(_written)]
