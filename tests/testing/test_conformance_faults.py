"""Every criterion of environments and protocols finds the fault it is there for, at its line.

The plugins in `fixtures/unsound` hold one fault each, on the line marked `# fault`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from click.testing import CliRunner

from searchrl.cli import main
from searchrl.plugins import load_plugins
from searchrl.testing.conformance import check_entry, find_entries
from searchrl.testing.criteria import Report, Status
from searchrl.testing.kinds import env_episodes, env_tasks
from searchrl.testing.kinds.envs import ENV_CRITERIA
from searchrl.testing.kinds.protocols import PROTOCOL_CRITERIA
from searchrl.testing.kit import fuzz
from searchrl.testing.probes.elsewhere import call_elsewhere

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"

pytestmark = pytest.mark.thorough

FAULTS = {
    "env_returns_text": "E1",
    "env_slow_to_make": "E2",
    "env_space_of_letters": "E3",
    "env_prompt_not_text": "E4",
    "env_answers_not_tuple": "E5",
    "env_global_random": "E6",
    "env_task_of_instance": "E6",
    "env_random_reward": "E7",
    "env_leaks": "E8",
    "env_splits_overlap": "E9",
    "env_clamps_index": "E10",
    "env_raises_on_text": "E11",
    "env_nan_reward": "E12",
    "env_never_ends": "E13",
    "env_goes_on": "E14",
    "env_ignores_budget": "E15",
    "env_raw_passages": "E16",
    "env_gold_not_paid": "E17",
    "env_function_in_task": "E18",
    "env_only_here": "E19",
    "protocol_no_stops": "P1",
    "protocol_parser_raises": "P2",
    "protocol_score_out_of_range": "P3",
    "protocol_stop_never_written": "P4",
    "protocol_turn_goes_on": "P5",
    "protocol_reads_otherwise": "P6",
    "protocol_opens_nothing": "P7",
    "protocol_lets_tags_through": "P8",
    "protocol_swayed": "P9",
    "protocol_forgeable": "P10",
    "protocol_cuts_the_tag": "P11",
    "protocol_explains_nothing": "P12",
}
"""File of `fixtures/unsound` -> the criterion that must fail."""

ALSO = {
    # What is not within the space, or does not repeat, Gymnasium's own checker sees as well.
    "env_prompt_not_text": {"E3"},
    "env_global_random": {"E3", "E7", "E8", "E19"},  # a draw may come out alike
    "env_task_of_instance": {"E7", "E8", "E19"},
    "env_random_reward": {"E3", "E8"},
    "env_leaks": {"E3"},
    "env_nan_reward": {"E3"},
    "env_function_in_task": {"E3"},
    # What nobody reads is not made harmless in thoughts either.
    "protocol_stop_never_written": {"P5"},
    # One fault, seen twice: its verdicts parse.
    "protocol_parser_raises": {"P3"},
}
"""What else the same fault may make fail."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer random texts, which no fault here needs, and no other process where none is needed."""
    monkeypatch.setattr(fuzz, "NUM_EXAMPLES", 20)
    monkeypatch.setattr(
        env_episodes, "call_elsewhere", lambda registry, ask, *args: ask(registry, *args)
    )


def report_on(path: Path) -> Report:
    registry = load_plugins([str(path)], entry_points=False)
    (entry,) = find_entries(registry, str(path))
    return check_entry(registry, entry)


def definitions_around(path: Path, line: int) -> set[int]:
    """The first lines of every function and class that holds a line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return {n.lineno for n in nodes if n.lineno <= line <= (n.end_lineno or 0)}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_found_at_its_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "env_only_here":
        monkeypatch.setattr(env_episodes, "call_elsewhere", call_elsewhere)
    if name == "env_slow_to_make":
        monkeypatch.setattr(env_tasks, "MAX_MAKE_S", 0.04)
    path = FIXTURES / "unsound" / f"{name}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    (fault,) = (number for number, line in enumerate(lines, 1) if "# fault" in line)

    report = report_on(path)

    failed = {result.number: result for result in report.failed}
    assert set(failed) - ALSO.get(name, set()) == {FAULTS[name]}, failed
    for finding in failed[FAULTS[name]].findings:
        assert finding.file == str(path)
        assert finding.line in {fault, *definitions_around(path, fault)}, finding
        assert finding.what and finding.mend


def test_every_criterion_of_envs_and_protocols_has_its_fault() -> None:
    numbers = [criterion.number for criterion in (*ENV_CRITERIA, *PROTOCOL_CRITERIA)]
    assert list(dict.fromkeys(FAULTS.values())) == numbers


@pytest.mark.parametrize("path", sorted((FIXTURES / "sound").glob("*.py")), ids=lambda p: p.stem)
def test_sound_plugin_passes_everything(path: Path) -> None:
    report = report_on(path)
    assert report.is_good, report.failed
    assert {result.status for result in report.results} == {Status.PASSED}


@pytest.mark.parametrize("name", FAULTS)
def test_unsound_plugin_breaks_nothing_else(name: str) -> None:
    unsound, sound = FIXTURES / "unsound" / f"{name}.py", FIXTURES / "sound" / "env.py"
    registry = load_plugins([str(unsound), str(sound)], entry_points=False)
    assert not registry.failures
    assert registry.get("env", "env:capitals").make(
        protocol=registry.get("protocol", "think-search-answer").make(),
        retriever=registry.get("retriever", "bm25").load(),
    )
    shown = CliRunner().invoke(main, ["--plugin", str(unsound), "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Not loaded" not in shown.output
