"""The source of an export: weights of a run, and the figures that were measured of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from searchrl.errors import RunFolderError
from searchrl.run_folder import Run, choose_policy
from searchrl.run_folder.checkpoints import FOLDER, is_checkpoint_name, step_of


@dataclass(frozen=True, slots=True)
class Source:
    """Weights of a run. `step`: that of a checkpoint; None: the run's final policy."""

    run: Run
    policy: Path
    step: int | None
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str | Path) -> Source:
        """Open a run folder (its final policy, else its newest checkpoint) or a checkpoint.

        Raises `DamagedError` if none of the weights is whole, `RunFolderError` if there are none.
        """
        run = Run.find(name) or Run.open(name)
        chosen = choose_policy(Path(name))
        if chosen is None:
            raise RunFolderError(f"run '{name}' holds no weights: no policy/ and no checkpoint")
        above = chosen.folder.parent
        is_checkpoint = is_checkpoint_name(above.name) and above.absolute().parent.name == FOLDER
        step = step_of(above) if is_checkpoint else None
        return cls(run, chosen.folder, step, chosen.notes)

    @property
    def figures(self) -> dict[str, Mapping[str, Any]]:
        """Metrics by when they were measured: `before` and `after` of a run, `during` of a step."""
        if self.step is None:
            summary = self.run.summary
            return {name: summary[name] for name in ("before", "after") if summary.get(name)}
        for row in self.run.metric_rows():
            if row["phase"] == "during" and row["step"] == self.step:
                return {"during": row["metrics"]}
        return {}
