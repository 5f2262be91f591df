"""The `tensorboard` tracker: scalars, without intervals, as TensorBoard event files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from searchrl.errors import ConfigError, RunFolderError
from searchrl.trust.folders import place_inside


class TensorBoardTracker:
    """Writes every metric as the scalar `phase/name`.

    Args:
        run_dir: the run folder.
        path: the folder of the event files in it.

    Raises `ConfigError` if TensorBoard is not installed, or the path is outside of the run folder,
    `RunFolderError` if the folder cannot be written.
    """

    def __init__(self, run_dir: str | Path, path: str = "tensorboard") -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "tracker tensorboard: TensorBoard is not installed; run "
                "`pip install 'searchrl[tensorboard]'`, or leave it out of log.trackers"
            ) from error
        self.path = place_inside(Path(run_dir), path, "tracker tensorboard: path")
        with self._guarding():
            self._writer: Any = SummaryWriter(str(self.path))

    def log(self, step: int, metrics: Mapping[str, Mapping[str, float]], phase: str) -> None:
        """Write the values of one step."""
        with self._guarding():
            for name, metric in metrics.items():
                self._writer.add_scalar(f"{phase}/{name}", metric["value"], step)

    def close(self) -> None:
        """Flush and close."""
        with self._guarding():
            self._writer.close()

    @contextmanager
    def _guarding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFolderError(
                f"tracker tensorboard cannot write '{self.path}': {error.strerror or error}"
            ) from error
