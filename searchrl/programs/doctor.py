"""The doctor as a program: the checks of a plan, and those at the start of training.

Owns what becomes of their report: shown by `searchrl doctor`, an error or a note at the start of a
run. The checks are `engine/checks`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from searchrl.engine.checks.report import Report, State
from searchrl.engine.learning.workers import ALONE
from searchrl.plugins import Registry
from searchrl.programs.setup.planning import Plan
from searchrl.programs.setup.session import Session
from searchrl.screen.observer import Observer


def examine_plan(plan: Plan, registry: Registry) -> Report:
    """Make the objects of a training run, check them and give everything back."""
    # A cut distribution, which no run would begin with, is one of the findings here.
    sampling = plan.config.sampling
    allowed = {"sampling": sampling.model_copy(update={"allow_truncated": True})}
    plan = replace(plan, config=plan.config.model_copy(update=allowed))
    with closing(Session(plan, registry, ALONE, lambda text: None)) as session:
        return session.examine(is_thorough=True, sampling=sampling)


def ensure_sound(session: Session, observer: Observer) -> None:
    """Run the quick checks of a session and say how long they took; CheckError if one failed."""
    report = session.examine(is_thorough=False)
    report.ensure_good()
    for one in report.of(State.WARNED):
        observer.warn(f"check '{one.name}': {one.verdict.says}. {one.verdict.fix}")
    observer.note(f"start-up checks: {report.summary}")
