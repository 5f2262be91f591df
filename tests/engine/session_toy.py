"""A training session on the toy world, as `train` would make it, for tests of checks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from train_toy import settings

from searchrl.engine.checks.report import Report, State, Verdict
from searchrl.engine.learning.workers import ALONE
from searchrl.plugins import Registry
from searchrl.programs.setup.planning import plan_run
from searchrl.programs.setup.session import Session

LORA = {"adapter": "lora", "lora_r": 4}
TAGS = {
    "protocol": {
        "name": "think-search-answer",
        "instruction": "Write <think> a thought </think>, then <search> or <answer>.",
    }
}
"""A protocol with an instruction, and with stop strings of several tokens."""


@contextmanager
def toy_session(folder: Path, registry: Registry, **more: Any) -> Iterator[Session]:
    more = {"eval": {"every": 0}} | more
    plan = plan_run(settings(folder, Path("never-written"), **more))
    session = Session(plan, registry, ALONE, lambda text: None)
    try:
        yield session
    finally:
        session.close()


MakeSession = Callable[..., Session]


def failures(report: Report) -> dict[str, Verdict]:
    return {one.name: one for one in report.of(State.FAILED)}


def same_weights(session: Session) -> Callable[[], bool]:
    """Take the weights now; later, whether they are the same bit for bit."""
    before = [parameter.detach().clone() for parameter in session.policy.parameters]
    return lambda: all(map(torch.equal, before, session.policy.parameters))
