"""Tag names: which are usable, and how tags are found in foreign text.

Owns the check of configured names, and the pattern of the tags that `neutralise` replaces. Called
by the protocols of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from searchrl.errors import ConfigError

INFORMATION_VARIANTS = ("information", "context", "result", "r")
"""Names that systems use for the environment's tag: neutralised in foreign text everywhere."""

_TAG_NAME = re.compile(r"[a-z][a-z0-9_]*")


def ensure_tag_names(names: Mapping[str, str]) -> None:
    """Raise `ConfigError` if the name of a setting's tag is not a tag name, or is used twice."""
    for setting, name in names.items():
        if not isinstance(name, str) or not _TAG_NAME.fullmatch(name):
            raise ConfigError(
                f"protocol.{setting}: {name!r} is not a tag name; expected a lower-case letter "
                "followed by lower-case letters, digits or underscores"
            )
    if len(set(names.values())) < len(names):
        listed = ", ".join(names.values())
        raise ConfigError(f"protocol tags must differ from each other, got {listed}")


def foreign_tags(names: Iterable[str]) -> re.Pattern[str]:
    """A pattern of the tags of `names` and of the usual ones of other systems.

    It finds them in any case and spacing. The quantifiers are possessive, so that long runs of
    blanks take linear time.
    """
    known = "|".join(sorted({*names, *INFORMATION_VARIANTS, "think", "search", "answer"}))
    return re.compile(rf"<(\s*+/?\s*+(?:{known})\s*+/?\s*+)>", re.IGNORECASE)
