"""`--run-dir` of `eval`, `ask` and `play`: a run folder with the episodes they played.

Owns what these commands write. The layout is the same as in every run folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from searchrl.cli.lines import say, style
from searchrl.config import RunConfig
from searchrl.engine.metrics.metrics import find_headline
from searchrl.engine.rollout.playing import Rollout
from searchrl.engine.rollout.records import rollout_record
from searchrl.plugins import Registry
from searchrl.run_folder import RunWriter, holding
from searchrl.trust.permission import trust_created


def record_episodes(
    config: RunConfig,
    registry: Registry,
    phase: str,
    rollouts: Sequence[Rollout],
    metrics: Mapping[str, Any],
    *,
    began: float,
    more: Mapping[str, Sequence[Rollout]] = MappingProxyType({}),
    **facts: Any,
) -> None:
    """Write config, provenance, metrics and episodes to `config.run_dir`, if one was given.

    `began` is the reading of `time.monotonic` when the command began to work.
    Episodes in `more` get the phases they stand under; `facts` go into the provenance.
    Raises `RunFolderError` if the folder holds a run already or cannot be written.
    """
    if config.run_dir is None:
        return
    spent_s = time.monotonic() - began
    with holding(Path(config.run_dir)):
        writer = RunWriter.create(config, Path(config.run_dir), spent_s)
        writer.write_provenance(
            registry.provenance(),
            program=phase,
            seed=config.seed,
            fingerprint=config.fingerprint,
            **facts,
        )
        if note := trust_created(config, registry, writer.path):
            say(style("warning: ", fg="yellow"), note, err=True)
        for name, played in {phase: rollouts, **more}.items():
            if played:
                log = config.log
                rows = (rollout_record(r, name, None) for r in played)
                writer.write_rollouts(name, rows, compress=log.compress)
        if metrics:  # figures without the episodes they are of would be worth little
            writer.log(0, metrics, phase)
        headline = find_headline(rollout.world for rollout in rollouts)
        writer.write_summary({"headline": headline, phase: metrics})
