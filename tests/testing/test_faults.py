"""Every criterion finds the fault it is there for, at its line, and nothing else.

The faults are patches of the sound plugins, at least one for each criterion.
"""

import ast
from pathlib import Path

import pytest
from fixtures.unsound import FAULTS, SOUND, fault_lines, write_unsound

from searchrl.testing import Status, check_plugin
from searchrl.testing.conformance import criteria_of
from searchrl.testing.criteria import Report
from searchrl.testing.kit import fuzz

pytestmark = pytest.mark.thorough

SOUND_ONES = sorted({kind for kind, _ in FAULTS} - {"tool_env"})


def report_on(path: Path) -> Report:
    (report,) = check_plugin(str(path))
    return report


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few random texts: no fault needs more."""
    monkeypatch.setattr(fuzz, "NUM_EXAMPLES", 20)
    # Some of the plugins write where they stand.
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def definitions_around(path: Path, line: int) -> set[int]:
    """The first lines of every function and class that holds a line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return {n.lineno for n in nodes if n.lineno <= line <= (n.end_lineno or 0)}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
@pytest.mark.parametrize(("kind", "name"), FAULTS)
def test_a_fault_is_found_by_its_criterion_at_its_line(
    kind: str, name: str, tmp_path: Path
) -> None:
    fault = FAULTS[kind, name]
    path = write_unsound(kind, name, tmp_path)
    (line,) = fault_lines(path)
    lines = {line}
    # What a method returns is said at the method.
    if kind in ("env", "tool_env", "protocol", "tracker", "generator"):
        lines |= definitions_around(path, line)

    failed = {result.number: result for result in report_on(path).failed}

    assert fault.criterion in failed, f"failed instead: {sorted(failed)}"
    assert {*failed} <= {fault.criterion, *fault.also}
    findings = failed[fault.criterion].findings
    assert any(fault.says in finding.what for finding in findings), findings
    assert {finding.file for finding in findings} == {str(path)}
    assert {finding.line for finding in findings} <= lines, findings
    assert all(finding.fix for finding in findings)


def test_every_criterion_has_a_fault_that_it_must_find() -> None:
    kinds = {*SOUND_ONES} - {"group_reward"}
    numbers = {one.number for kind in kinds for one in criteria_of(kind)}
    assert len(numbers) > 60 and {fault.criterion for fault in FAULTS.values()} == numbers


@pytest.mark.parametrize("kind", SOUND_ONES)
def test_the_sound_plugin_passes_everything(kind: str) -> None:
    report = report_on(SOUND / f"{kind}.py")
    assert report.is_good, report.failed
    assert all(result.status is Status.PASSED for result in report.results)
