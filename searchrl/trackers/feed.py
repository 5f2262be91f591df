"""The trackers of a run: made from its config, fed together, closed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from searchrl.config.sections import Named
from searchrl.contracts import Metric
from searchrl.contracts.watching import Tracker
from searchrl.core.encoding import make_encodable
from searchrl.plugins import Entry, Registry
from searchrl.plugins.registry import raising_of


class Trackers:
    """All trackers of a run. Use as a context manager: leaving it closes every one.

    Raises `SearchRLError` if one cannot be made; those made before it are closed.
    """

    def __init__(self, registry: Registry, specs: Sequence[Named], run_dir: Path) -> None:
        self._trackers: list[tuple[Entry, Tracker]] = []
        try:
            for spec in specs:
                entry = registry.get("tracker", spec.name)
                self._trackers.append((entry, entry.make(run_dir, **spec.settings)))
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def log(self, step: int, metrics: Mapping[str, Metric], phase: str) -> None:
        """Give every tracker the metrics of one step, with names that can be written anywhere.

        Raises `SearchRLError` with the tracker and its plugin if one raises.
        """
        metrics = {make_encodable(name): metric for name, metric in metrics.items()}
        for entry, tracker in self._trackers:
            with raising_of(f"{entry} failed in log({step}, …, '{phase}'):"):
                tracker.log(step, metrics, phase)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failures: list[Exception] = []
        for entry, tracker in self._trackers:
            try:
                with raising_of(f"{entry} failed in close():"):
                    tracker.close()
            except Exception as failure:  # the others are closed all the same
                failures.append(failure)
        self._trackers.clear()
        if failures and error is None:
            raise failures[0]
        if error is not None:
            # The error that ended the run comes first; those of closing are notes to it.
            for late in failures:
                error.add_note(str(late))
