"""How many episodes may fail: a few are told and left out, more than the limit end the program."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from searchrl.core.episode import Failure, FailureKind
from searchrl.engine.metrics.failures import FailureLimit
from searchrl.errors import BudgetSpent, FailureLimitError

BROKEN = Failure(FailureKind.ENVIRONMENT, "toy", "broken", "Traceback")
SPENT = Failure(FailureKind.BUDGET, "generator", "spent")


def episodes(num_broken: int, num_unpaid: int = 0, *, is_scored: bool = True) -> list[Any]:
    """Ten; those that did not fail have a score or a reason why not."""
    failures: list[Failure | None] = [BROKEN] * num_broken + [SPENT] * num_unpaid
    failures += [None] * (10 - len(failures))
    return [
        SimpleNamespace(
            is_scored=is_scored and failure is None,
            scored=SimpleNamespace(failure=failure, unscored="no answer"),
            trajectory=SimpleNamespace(rollout_id="r"),
            episode=SimpleNamespace(task=SimpleNamespace(id="t")),
            world=SimpleNamespace(name="toy"),
        )
        for failure in failures
    ]


def test_a_few_failures_pass_and_more_than_the_limit_end_it() -> None:
    notes: list[str] = []
    saved: dict[str, str] = {}

    def save(name: str, text: str) -> Path:
        saved[name] = text
        return Path(name)

    limit = FailureLimit("training", 0.2, save, notes.append)
    limit.ensure(episodes(0), "step 1", "one")
    assert not notes and not saved
    limit.ensure(episodes(2, num_unpaid=5), "step 2", "two")
    assert notes[0].startswith("step 2: 5 of 10") and notes[0].endswith("spent")
    assert "2 of 10" in notes[1] and saved["two"].count("Traceback") == 2
    with pytest.raises(
        FailureLimitError, match=r"3 of 10 .*\n.*environment failure of toy: broken"
    ):
        limit.ensure(episodes(3), "step 3", "three")
    with pytest.raises(BudgetSpent, match="1 of 10 episodes have no score: spent"):
        limit.ensure_paid(episodes(1, num_unpaid=1), "step 4")
    limit.ensure_paid(episodes(9), "step 5")
    for scored in (episodes(9), episodes(10)):  # one has a score; `ensure` has told of ten
        limit.ensure_scored(scored, "step 6")
    with pytest.raises(FailureLimitError, match=r"none of its 10 rollouts.*\n  10 × no answer"):
        limit.ensure_scored(episodes(1, is_scored=False), "step 7")
    several = episodes(0, is_scored=False)
    for episode, reason in zip(several, "abbcccdddd", strict=True):
        episode.scored.unscored = reason
    with pytest.raises(FailureLimitError, match=r"\n  4 × d\n  3 × c\n  2 × b\nChoose"):
        limit.ensure_scored(several, "step 8")
