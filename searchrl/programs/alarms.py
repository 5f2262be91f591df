"""Actions on the alarms of a run: record, show, stop, or return to the best checkpoint.

A rollback takes weights, optimiser and the algorithm's state of that checkpoint, at a lower
learning rate, while steps, tasks and the schedule go on. It is part of the checkpoint of its step,
so a run that is killed before that is written does it again.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import NonNegativeInt
from typing_extensions import TypedDict

from searchrl.alarms.watch import Watch
from searchrl.contracts import Metric
from searchrl.contracts.history import History
from searchrl.engine.learning.checkpoint import load_checkpoint
from searchrl.engine.metrics.metrics import Metrics, label_tasks
from searchrl.errors import AlarmStop
from searchrl.programs.setup.session import Session
from searchrl.run_folder import Run, RunWriter, checkpoint_fault, guarding
from searchrl.run_folder.checkpoints import remove_checkpoint
from searchrl.screen.observer import Observer
from searchrl.trackers.rows import read_rows


class Best(TypedDict):
    """The step of the best checkpoint, and its reward on validation tasks."""

    step: NonNegativeInt
    reward: Metric


class Rollback(TypedDict):
    """A rollback after `step`, to the checkpoint of step `to`; `lr_scale` holds since."""

    step: NonNegativeInt
    to: NonNegativeInt
    alarm: str
    lr_scale: float


class AlarmDesk:
    """The alarms of a run, last asked after step `last_step`; it adds to `rollbacks`."""

    def __init__(
        self,
        session: Session,
        writer: RunWriter,
        observer: Observer,
        last_step: int,
        rollbacks: list[Rollback],
    ) -> None:
        self.session, self.writer, self.observer = session, writer, observer
        self.settings = session.config.alarms
        self.rollbacks = rollbacks
        worlds = session.worlds
        names = label_tasks(worlds) if len(worlds) > 1 else [""]
        rewards = {name: world.scorer.schedule for name, world in zip(names, worlds, strict=True)}
        settings = session.config.to_dict()
        dtype = str(session.policy.dtype).removeprefix("torch.")
        history = History(
            settings | {"model": settings["model"] | {"dtype": dtype}},
            tuple(name for name in names if name),
        )
        self.watch = Watch(session.registry, self.settings.watch, history, rewards)
        anew = rollbacks[-1]["step"] if rollbacks else -1
        if session.workers.is_first:
            self.watch.replay(read_rows(writer.path / "metrics.jsonl"), last_step, anew)
        writer.keep_alarms(last_step)
        if rollbacks or "rollbacks" in Run(writer.path).provenance:
            writer.update_provenance(rollbacks=rollbacks)
        session.learner.lr_scale = self._lr_scale()

    def count(self) -> Metrics:
        """The metric `rollbacks`, once there has been one."""
        done = len(self.rollbacks)
        return {"rollbacks": {"value": float(done), "n": 1}} if done else {}

    def heed(self, step: int, best: Best | None) -> bool:
        """Ask the alarms about a finished step, say what sounds and do what it asks for.

        Returns whether the run was returned to its `best` checkpoint; the caller must then write
        the checkpoint of this step. Raises AlarmStop for the action `stop`, and for a rollback that
        cannot be done.
        """
        # Times differ from process to process, so the first one judges for all.
        workers = self.session.workers
        sounded = workers.gather(self.watch.ask(step) if workers.is_first else [])[0]
        for row in sounded:
            self.writer.write_alarm(row)
            self.observer.alarm(row)
        alarm_of = {row["action"]: row["alarm"] for row in reversed(sounded)}
        alarm = alarm_of.get("stop") or alarm_of.get("rollback")
        if alarm is None:
            return False
        stopped = f"alarm '{alarm}' stopped the run after step {step}"
        if "stop" in alarm_of:
            raise AlarmStop(stopped)
        folder = self._find_target(best)
        if isinstance(folder, str):
            raise AlarmStop(f"{stopped}, because {folder}")
        assert best is not None
        self._roll_back(alarm, step, best["step"], folder)
        return True

    def _find_target(self, best: Best | None) -> Path | str:
        """The checkpoint to return to, or why there is none."""
        done = len(self.rollbacks)
        if done >= self.settings.max_rollbacks:
            times = "once" if done == 1 else f"{done} times"
            return f"it has returned {times} already (alarms.max_rollbacks={done})"
        if best is None:
            return "there is no best checkpoint to return to (eval.every sets when one is chosen)"
        folder = self.writer.path / "checkpoints" / f"step_{best['step']:06d}"
        fault = f"the best checkpoint, '{folder}', is gone"
        if folder.is_dir() and (fault := checkpoint_fault(folder, deep=True)):
            fault = f"the best checkpoint cannot be read: {fault}"
        # All processes have to find the same.
        faults = [one for one in self.session.workers.gather(fault) if one]
        return faults[0] if faults else folder

    def _roll_back(self, alarm: str, step: int, to: int, folder: Path) -> None:
        learner, policy = self.session.learner, self.session.policy
        taken, version = learner.step, policy.version
        learner.is_halfway = True  # until the end: a mixture of two steps is not worth keeping
        load_checkpoint(folder, policy, learner)
        # The schedule goes on. The version is a new one: the sampler has to take the weights over.
        learner.step, policy.version = taken, version + 1
        self.session.ahead = None  # drawn with weights that are given up
        scale = self._lr_scale() * self.settings.rollback_lr
        self.rollbacks.append({"step": step, "to": to, "alarm": alarm, "lr_scale": scale})
        learner.lr_scale = scale
        learner.ensure_same_weights(f"after the rollback to step {to}")
        self.watch.begin_anew()
        if to != step and self.session.workers.is_first:
            # Weights are no longer those of the step, if an earlier process has saved them.
            stale = self.writer.path / "checkpoints" / f"step_{step:06d}"
            with guarding(self.writer.path):
                if stale.is_dir():
                    remove_checkpoint(stale)
        learner.is_halfway = False
        self.writer.update_provenance(rollbacks=self.rollbacks)
        self.observer.note(
            f"alarm '{alarm}' at step {step}: back to the weights of step {to}, and on with "
            f"{scale:g} of the learning rate (rollback {len(self.rollbacks)} of at most "
            f"{self.settings.max_rollbacks})"
        )

    def _lr_scale(self) -> float:
        return self.rollbacks[-1]["lr_scale"] if self.rollbacks else 1.0
