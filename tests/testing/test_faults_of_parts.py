"""Rewards, retrievers, trackers and algorithms with one fault each, marked `# fault`.

The criterion named here must fail, at that line, and no criterion may fail that is not listed.
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import pytest

from searchrl.plugins import load_plugins
from searchrl.testing.criteria import Result, Status, run_criteria
from searchrl.testing.suites import criteria_of

FIXTURES = Path(__file__).parent.parent / "fixtures" / "unsound"

# File -> the criterion that must name the fault, what it says, and what else fails by necessity.
pytestmark = pytest.mark.thorough

FAULTS: dict[str, tuple[str, str, str]] = {
    "reward_no_values": ("W1", "values = None; expected a tuple of numbers", ""),
    "reward_needs_answer": ("W2", "raised AttributeError: 'NoneType' object", ""),
    "reward_ascii": ("W2", "case 'unicode-nfd' (an answer with decomposed accents)", ""),
    "reward_undeclared": ("W3", "returned 0.2, which is not in its values (0.0, 1.0)", ""),
    "reward_per_turn": ("W4", "1 process scores for 2 turns", ""),
    "reward_counts": ("W5", "case 'gold' is 0.0 scored after other episodes", "W6 W8 W9 W10 W11"),
    "reward_draws": ("W5", "scored again by the same component", "W6 W8 W9 W10 W11"),
    "reward_clock": ("W6", "with another seed, time, folder and language", ""),
    "reward_notes": ("W6", "it writes", ""),
    "reward_mutates": ("W7", "is another episode after it was scored", ""),
    "reward_pays_empty": ("W8", "the answer '.' earns 1, as much as the gold answer (1)", ""),
    "reward_pays_silence": ("W8", "case 'empty-answer' earns 0, the gold answer -1", "W10"),
    "reward_fooled": ("W9", "changes the score from 0 to 1", ""),
    "reward_pays_repeats": ("W10", "'repeated-in-turn' earns 3, a single gold answer 1", ""),
    "reward_hashes": ("W11", "in another process", ""),
    "reward_novel": ("W11", "case 'gold' is 1.0 in another process, and 0.0 otherwise", ""),
    "retriever_strings": ("R1", "a list that holds str; expected Passage", ""),
    "retriever_one_batch": ("R2", "in a batch of 6 and", ""),
    "retriever_ignores_k": ("R3", "query 'library' with k=1 finds 2 passages", ""),
    "retriever_strangers": ("R4", "finds 'hit-0', which is no id of its corpus", "R8"),
    "retriever_unsorted": ("R5", "gives the scores [1.0, 2.0], which rise", ""),
    "retriever_needs_match": ("R6", "raised IndexError", ""),
    "retriever_shuffles": ("R7", "asked again", "R2 R11"),
    "retriever_needs_corpus": ("R8", "an empty corpus: it raised ValueError", ""),
    "retriever_mutates": ("R9", "the list of passages is another one afterwards", ""),
    "retriever_swallows": ("R10", "as if nothing had been found", ""),
    "retriever_hash_order": ("R11", "in another process", ""),
    "tracker_no_close": ("T1", "makes a Tracker without a method close", ""),
    "tracker_needs_reward": ("T2", "raised KeyError: 'reward'", ""),
    "tracker_outside": ("T3", "it writes log.txt in the current folder", ""),
    "tracker_connects": ("T4", "it opens a connection to 127.0.0.1:9", ""),
    "tracker_truncates": ("T5", "made again, it emptied log.txt", ""),
    "tracker_pops": ("T6", "the metrics of step 1 are others after log()", ""),
    "algorithm_reduction": ("A1", "reduction = 'mean'; expected one of token-mean", ""),
    "algorithm_length": ("A2", "an unscored rollout: 3 advantages for 4 rollouts", "A4"),
    "algorithm_unscored": ("A3", "an unscored rollout (its reward reads 0) has", ""),
    "algorithm_nan": ("A4", "a group of equal rewards: the advantage of rollout 0 is nan", ""),
    "algorithm_draws": ("A5", "from one algorithm and", "A3 A6 A10"),
    "algorithm_mutates": ("A5", "two groups: the step is another one afterwards", ""),
    "algorithm_order": ("A6", "in another order of the rollouts", ""),
    "algorithm_detached": ("A7", "expected a scalar tensor with a gradient", ""),
    "algorithm_sign": ("A8", "an update moves its log-prob down", ""),
    "algorithm_unmasked": ("A9", "token 1 is not in the mask and has the gradient", ""),
    "algorithm_times_mask": ("A9", "where masked log-probs are nan", "A7"),
    "algorithm_forgets": ("A10", "after state_dict() was loaded", ""),
}
SLOW = ("W11", "R11")
"""Criteria that start a process; run where they are what must fail."""


def fault_lines(path: Path) -> list[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [i for i, text in enumerate(lines, 1) if text.endswith("# fault")]


def check(path: Path, wanted: str) -> list[Result]:
    kind = path.stem.partition("_")[0]
    registry = load_plugins([str(path)], strict=True, entry_points=False)
    (entry,) = [e for e in registry.entries() if e.owner.file == str(path)]
    module: Any = importlib.import_module(f"searchrl.testing.kinds.{kind}s")
    subject = getattr(module, f"{kind.capitalize()}Subject").of(registry, entry)
    chosen = [c for c in criteria_of(kind) if c.number == wanted or c.number not in SLOW]
    return list(run_criteria(chosen, subject, file=entry.owner.file, line=entry.line))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named_with_its_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The note-takers among them write where they stand.
    monkeypatch.chdir(tmp_path)
    wanted, text, others = FAULTS[name]
    path = FIXTURES / f"{name}.py"
    failed = {r.number: r for r in check(path, wanted) if r.status is Status.FAILED}
    assert wanted in failed, f"failed instead: {sorted(failed)}"
    assert {*failed} <= {wanted, *others.split()}
    findings = failed[wanted].findings
    assert any(text in finding.what for finding in findings), findings
    assert {(f.file, f.line) for f in findings} == {(str(path), *fault_lines(path))}
    assert all(finding.mend for finding in findings)


def test_every_fixture_of_these_kinds_is_in_the_table() -> None:
    kinds = ("reward", "retriever", "tracker", "algorithm")
    assert {p.stem for kind in kinds for p in FIXTURES.glob(f"{kind}_*.py")} == {*FAULTS}


@pytest.mark.parametrize("kind", ["reward", "retriever", "tracker", "algorithm"])
def test_every_criterion_has_a_plugin_that_fails_it(kind: str) -> None:
    numbers = [c.number for c in criteria_of(kind)]
    assert numbers == [f"{numbers[0][0]}{i}" for i in range(1, len(numbers) + 1)]
    assert {*numbers} <= {wanted for wanted, _, _ in FAULTS.values()}


def test_the_checks_leave_seeds_clock_and_folder_as_they_were() -> None:
    import random
    import time

    random.seed(5)
    expected, before, clock = random.Random(5).random(), Path.cwd(), time.time
    check(FIXTURES / "reward_clock.py", "W6")
    assert (random.random(), Path.cwd(), time.time) == (expected, before, clock)
    assert not math.isclose(time.time(), 2.0e9, abs_tol=1e6)
