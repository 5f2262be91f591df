"""Permission: what of a run folder's configuration may be used, and what this user has trusted.

What the user named now may be used; so may what the user has trusted before, kept in the user's own
state folder. All else is refused before anything of it is imported, read or asked.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig, load_preset
from searchrl.config.packaged import find_packaged, is_packaged, package_of
from searchrl.core.encoding import encode_text
from searchrl.errors import PluginError, RunFolderError
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.loading import absolute_source
from searchrl.plugins.provenance import read_records
from searchrl.trust.needs import Need, find_needs, is_installed, texts_in


@dataclass(frozen=True, slots=True)
class Permission:
    """What a user named. With `is_given`, all else may be used, too, this once."""

    named: frozenset[str] = frozenset()
    is_given: bool = False

    @classmethod
    def of(cls, *layers: Mapping[str, Any], is_given: bool = False) -> Permission:
        """For settings that the user wrote: every text in them may be used."""
        texts = {text for layer in layers for text in texts_in(layer)}
        sources = {
            absolute_source(text) for layer in layers for text in texts_in(layer.get("plugins"))
        }
        return cls(frozenset(texts | sources), is_given)

    def ensure(self, config: RunConfig, run: str | Path | None) -> dict[str, str]:
        """Look at a configuration that came from a run folder, in part or as a whole.

        Args:
            config: what is about to be used.
            run: the run folder; None: it is all the user's own.

        Returns:
            Of what only the run folder names, the value and the hash of the file that it may name:
            a plugin file that is loaded must have it.

        Raises:
            PluginError: if something needs permission; it says what, and how to give it.
        """
        if run is None:
            return {}
        # The presets of packages are as harmless as their defaults.
        named, preset = self.named, config.preset
        if preset is not None and (
            not is_packaged(preset)
            or (is_installed(package_of(preset)) and find_packaged(f"{preset}.yaml"))
        ):
            named |= Permission.of(load_preset(preset)).named
        found = find_needs(config, load_plugins(()), Path(run))
        needs = [need for need in found if need.value not in named]
        known, refused = trusted_folder(), list[Need]()
        if not self.is_given:
            refused = [one for one in needs if not (known / f"{one.digest()}.json").is_file()]
        if refused:
            place = shlex.quote(str(run))
            raise PluginError(
                f"the run folder {place} names {', '.join(map(str, refused))}, which needs your "
                "permission, as is normal for your own run from another machine: look at it, then "
                f"allow it once with --trust, or for good with: searchrl trust {place}"
            )
        return {need.value: need.content for need in needs}

    def load(self, config: RunConfig, run: str | Path | None) -> Registry:
        """The installed plugins and those of `config`, after `ensure`, whose errors it raises."""
        pinned = self.ensure(config, run)
        return load_plugins(
            config.plugins,
            strict=config.strict_plugins,
            must_load=True,
            pinned=pinned,
            recorded=read_records(run, config.to_dict()),
        )


def trusted_folder() -> Path:
    """Where the hashes are kept, such as `~/.local/state/searchrl/trusted`."""
    from platformdirs import user_state_path

    return user_state_path("searchrl", appauthor=False) / "trusted"


def trust(needs: Iterable[Need], run: str | Path) -> None:
    """Remember what may be used, for good; `run` is why.

    Raises:
        RunFolderError: if the state folder cannot be written.
    """
    folder = trusted_folder()
    facts = {"run": str(Path(run).absolute()), "since": datetime.now(UTC).isoformat()[:19]}
    try:
        for need in needs:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = folder / f"{need.digest()}.json"
            path.write_bytes(encode_text(json.dumps({"what": str(need), **facts}) + "\n"))
    except OSError as error:
        raise RunFolderError(
            f"cannot remember in '{folder}' what you trust: {error.strerror or error}. Make it "
            "writable, or use --trust each time"
        ) from error


def trust_created(config: RunConfig, registry: Registry, run: Path) -> str:
    """Remember what a run that this user creates needs, so that it can be used again.

    Not what another run folder named: that is trusted already, or was allowed this once.

    Returns:
        What the user should know if it could not be remembered, else "".
    """
    try:
        needs = find_needs(config, registry, run)
        trust((need for need in needs if need.value not in registry.pinned), run)
    except RunFolderError as error:
        return str(error)
    return ""
