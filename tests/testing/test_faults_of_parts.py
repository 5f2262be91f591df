"""Algorithms with one fault each, marked `# fault`.

The criterion named here must fail, at that line, and no criterion may fail that is not listed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from searchrl.plugins import load_plugins
from searchrl.testing.conformance import criteria_of
from searchrl.testing.criteria import Result, Status, run_criteria
from searchrl.testing.probes.subject import Subject

FIXTURES = Path(__file__).parent.parent / "fixtures" / "unsound"

# File -> the criterion that must name the fault, what it says, and what else fails by necessity.
pytestmark = pytest.mark.thorough

FAULTS: dict[str, tuple[str, str, str]] = {
    "algorithm_reduction": ("A1", "reduction = 'mean'; expected one of token-mean", ""),
    "algorithm_length": ("A2", "an unscored rollout: 3 advantages for 4 rollouts", "A4"),
    "algorithm_unscored": ("A3", "an unscored rollout (its reward reads 0) has", ""),
    "algorithm_nan": ("A4", "a group of equal rewards: the advantage of rollout 0 is nan", ""),
    "algorithm_draws": ("A5", "in another instance", "A3 A6 A10"),
    "algorithm_mutates": ("A5", "two groups: rewards is another one afterwards", ""),
    "algorithm_order": ("A6", "in another order of the rollouts", ""),
    "algorithm_detached": ("A7", "expected a scalar tensor with a gradient", ""),
    "algorithm_sign": ("A8", "an update moves its log-prob down", ""),
    "algorithm_unmasked": ("A9", "token 1 is not in the mask and has the gradient", ""),
    "algorithm_times_mask": ("A9", "where masked log-probs are nan", ""),
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
    subject = Subject.of(registry, entry)
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
    assert all(finding.fix for finding in findings)


def test_every_fixture_of_these_kinds_is_in_the_table() -> None:
    assert {p.stem for p in FIXTURES.glob("algorithm_*.py")} == {*FAULTS}


@pytest.mark.parametrize("kind", ["algorithm"])
def test_every_criterion_has_a_plugin_that_fails_it(kind: str) -> None:
    numbers = [c.number for c in criteria_of(kind)]
    assert numbers == [f"{numbers[0][0]}{i}" for i in range(1, len(numbers) + 1)]
    assert {*numbers} <= {wanted for wanted, _, _ in FAULTS.values()}
