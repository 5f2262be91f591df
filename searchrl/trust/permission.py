"""Permission for what a run folder's configuration names.

What the user named now may be used; so may what the user has trusted before, kept in the user's own
state folder. All else is refused before anything of it is imported, read or asked.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from searchrl.config import RunConfig, load_preset
from searchrl.config.packaged import is_packaged
from searchrl.core.encoding import encode_text
from searchrl.errors import ConfigError, PluginError, RunFolderError
from searchrl.plugins import Registry, load_plugins
from searchrl.plugins.loading import Given, absolute_source
from searchrl.plugins.provenance import read_records
from searchrl.trust.needs import Need, find_needs, is_installed, texts_in


@dataclass(frozen=True, slots=True)
class Permission:
    """Values that a user named. With `is_given`, all else may be used, too, this once."""

    named: frozenset[str] = frozenset()
    is_given: bool = False

    @classmethod
    def of(cls, *layers: Mapping[str, Any], is_given: bool = False) -> Permission:
        """For settings that the user wrote: every text in them may be used."""
        plugins = [layer.get("plugins") for layer in layers]
        named = {*texts_in(layers), *map(absolute_source, texts_in(plugins))}
        return cls(frozenset(named), is_given)

    def ensure(
        self, config: RunConfig, run: str | Path | None, installed: Registry
    ) -> dict[str, str]:
        """Refuse what needs permission in a configuration from a run folder; None: from none.

        Returns the hash of the file, if it names one, by each value that only the run folder
        names: a plugin file that is loaded must have it. Raises `PluginError` that says what needs
        permission, and how to give it.
        """
        if run is None:
            return {}
        named, preset = self.named, config.preset
        # The presets of packages are as harmless as their defaults.
        if preset and (not is_packaged(preset) or is_installed(preset)):
            with suppress(ConfigError):  # it is not here, and nothing was taken from it
                named |= Permission.of(load_preset(preset)).named
        needs = [one for one in find_needs(config, installed, Path(run)) if one.value not in named]
        refused = [str(one) for one in needs if not (self.is_given or _path_of(one).is_file())]
        if refused:
            place = shlex.quote(str(run))
            raise PluginError(
                f"the run folder {place} names {', '.join(refused)}, which needs your "
                "permission, as is normal for your own run from another machine: look at it, then "
                f"allow it once with --trust, or for good with: searchrl trust {place}"
            )
        return {need.value: need.content for need in needs}

    def load(
        self, config: RunConfig, run: str | Path | None, given: Given | None = None
    ) -> Registry:
        """The installed plugins, those of `config` and a `given` one, after `ensure`.

        Raises the errors of both.
        """
        return load_plugins(
            config.plugins,
            strict=config.strict_plugins,
            must_load=True,
            permit=lambda installed: self.ensure(config, run, installed),
            recorded=read_records(run, config),
            given=given,
        )


def _path_of(need: Need) -> Path:
    """The file of a need that is trusted, such as `~/.local/state/searchrl/trusted/HASH.json`."""
    from platformdirs import user_state_path

    return user_state_path("searchrl", appauthor=False) / "trusted" / f"{need.digest()}.json"


def trust(needs: Iterable[Need], run: str | Path) -> None:
    """Remember what may be used, for good; `run` is why.

    Raises `RunFolderError` if the state folder cannot be written.
    """
    facts = {"run": str(Path(run).absolute()), "since": datetime.now(UTC).isoformat()[:19]}
    for need in needs:
        path = _path_of(need)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(encode_text(json.dumps({"what": str(need), **facts}) + "\n"))
        except OSError as error:
            raise RunFolderError(
                f"cannot remember in '{path.parent}' what you trust: {error.strerror or error}. "
                "Make it writable, or use --trust each time"
            ) from error


def trust_created(config: RunConfig, registry: Registry, run: Path) -> str:
    """Remember what a run that this user creates needs, so that it can be used again.

    Not what another run folder named: that is trusted already, or was allowed this once. Returns a
    warning if it could not be remembered, else "".
    """
    try:
        needs = find_needs(config, registry, run)
        trust((need for need in needs if need.value not in registry.pinned), run)
    except RunFolderError as error:
        return str(error)
    return ""
