"""The `wandb` tracker: metrics, configuration and plugin provenance in Weights & Biases.

Owns which W&B run belongs to a run folder. An error of W&B after the start never ends a run: it is
a warning. A wrong setting or a missing login is an error before training begins.
"""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from searchrl import ConfigError, replace_file
from searchrl.contracts import Metric

STATE_FILE = "wandb_run.json"
"""In the run folder: `{"id": …, "step": …}`, the W&B run and the last step it was given."""

FINISH_TIMEOUT_S = 60.0
"""Seconds to wait for uploads at the end of a run; `wandb sync` sends what is left."""


class WandbTracker:
    """Logs every metric as `phase/name`, its interval, if any, as `phase/name/low` and `/high`.

    Args:
        run_dir: the run folder; W&B's files go to `wandb/` in it.
        project: the W&B project.
        entity: user or team; None: W&B's default.
        mode: None: the environment's `WANDB_MODE`, else online.
        name: of the W&B run; None: that of the run folder.
        tags: of the W&B run.
        group: runs that W&B shows together.

    Raises:
        ConfigError: if wandb is not installed, nobody is logged in, or W&B refuses a setting.
    """

    def __init__(
        self,
        run_dir: str | Path,
        project: str = "searchrl",
        entity: str | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        name: str | None = None,
        tags: list[str] | None = None,
        group: str | None = None,
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError(
                "tracker wandb: wandb is not installed; run `pip install wandb`, or leave it out "
                "of log.trackers"
            ) from error
        self._dir = Path(run_dir)
        state = self._read_state()
        self._id = str(state.get("id") or secrets.token_hex(4))
        self._last = int(state.get("step", -1))
        self._earlier = self._last
        wanted: dict[str, Any] = {
            "project": project,
            "entity": entity,
            "name": name or self._dir.resolve().name,
            "tags": tags,
            "group": group,
            "id": self._id,
            "resume": "allow",
            "reinit": "create_new",
            "dir": str(self._dir),
            "config": _read_run(self._dir),
            "allow_val_change": True,
            # SearchRL prints the console, and the end of a run must not wait for the network.
            "settings": wandb.Settings(console="off", silent=True, finish_timeout=FINISH_TIMEOUT_S),
        }
        try:
            self._run: Any = wandb.init(mode=mode, **wanted)
        except (wandb.errors.UsageError, wandb.errors.AuthenticationError) as error:
            raise ConfigError(
                f"tracker wandb: {str(error).rstrip('.')}. Log in with `wandb login` or "
                "WANDB_API_KEY, or keep the metrics on this machine with the setting mode: offline"
            ) from error
        except wandb.errors.CommError as error:
            warnings.warn(
                f"tracker wandb: W&B cannot be reached ({_first_line(error)}); this run is written "
                f"to {self._dir / 'wandb'}, send it later with `wandb sync`",
                stacklevel=2,
            )
            self._run = wandb.init(mode="offline", **wanted)
        self._write_state()

    def log(self, step: int, metrics: Mapping[str, Metric], phase: str) -> None:
        """Log one step; steps that an earlier process of the run has logged are left out."""
        if self._run is None or step <= self._earlier:
            return
        values: dict[str, float] = {}
        for name, metric in metrics.items():
            values[f"{phase}/{name}"] = metric["value"]
            if "low" in metric:
                values[f"{phase}/{name}/low"] = metric["low"]
                values[f"{phase}/{name}/high"] = metric["high"]
        try:
            # W&B drops a step below the last one.
            self._run.log(values, step=max(step, self._last))
        except Exception as error:  # no error of the service may end the run
            self._give_up(error)
            return
        if step > self._last:
            self._last = step
            self._write_state()

    def close(self) -> None:
        """Send what is left, for a minute at most, and end the W&B run."""
        if self._run is None:
            return
        try:
            self._run.finish()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._run = None
        warnings.warn(
            f"tracker wandb stopped: {type(error).__name__}: {_first_line(error)}. Training goes "
            f"on, and metrics.jsonl has everything; what W&B has is in {self._dir / 'wandb'}",
            stacklevel=3,
        )

    def _read_state(self) -> dict[str, Any]:
        path = self._dir / STATE_FILE
        return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}

    def _write_state(self) -> None:
        state = json.dumps({"id": self._id, "step": self._last})
        replace_file(self._dir / STATE_FILE, state.encode())


def _read_run(run_dir: Path) -> dict[str, Any]:
    """The resolved configuration, and under `searchrl` what else decided the run."""
    config, provenance = run_dir / "config.yaml", run_dir / "provenance.json"
    found: dict[str, Any] = {}
    if config.is_file():
        found |= yaml.safe_load(config.read_text("utf-8"))
    if provenance.is_file():
        record = json.loads(provenance.read_text("utf-8"))
        facts = ("fingerprint", "model", "device", "versions", "platform")
        kept = {key: record[key] for key in facts if key in record}
        keys = ("version", "origin", "sha256")
        kept["plugins"] = {p["plugin"]: {k: p[k] for k in keys} for p in record["plugins"]}
        found["searchrl"] = kept
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
