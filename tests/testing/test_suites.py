"""The checker in authors' own tests: what passes, what fails, and what the failure says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures.unsound import fault_lines, write_unsound

import searchrl.testing
from searchrl.errors import PluginError, UnknownNameError
from searchrl.testing import assert_conforms, check_plugin, conformance_cases

if TYPE_CHECKING:
    from searchrl.testing.pytest_plugin import MakePlugin

pytest_plugins = ["searchrl.testing.pytest_plugin"]

FIXTURES = Path(__file__).parent.parent / "fixtures"

SOUND = """
    from searchrl import hookimpl


    class Tracker:
        def __init__(self, run_dir, name="log.txt"):
            self.file = (run_dir / name).open("a", encoding="utf-8")

        def log(self, step, metrics, phase):
            self.file.write(f"{step} {phase} {dict(metrics)}\\n")

        def close(self):
            self.file.close()


    @hookimpl
    def register_trackers(register):
        register("notes", Tracker)
        register("notes2", Tracker)
"""


def test_make_plugin_returns_the_registry_with_the_plugin(make_plugin: MakePlugin) -> None:
    registry = make_plugin(SOUND, name="notes")
    assert {"notes", "notes2", "jsonl"} <= set(registry.names("tracker"))
    assert Path(registry.owners[-1].file).name == "notes.py"


def test_make_plugin_raises_with_the_line_of_the_fault(make_plugin: MakePlugin) -> None:
    with pytest.raises(PluginError, match=r"plugin.py:2\) raised at import: ZeroDivisionError"):
        make_plugin("x = 1\n1 / 0\n")


def test_a_sound_plugin_conforms(make_plugin: MakePlugin) -> None:
    file = make_plugin(SOUND).owners[-1].file
    assert_conforms(file)
    reports = check_plugin(file)
    assert [(r.kind, r.name, r.is_good) for r in reports] == [
        ("tracker", "notes", True), ("tracker", "notes2", True),
    ]  # fmt: skip


def test_settings_reach_the_factory(make_plugin: MakePlugin) -> None:
    file = make_plugin(SOUND).owners[-1].file
    with pytest.raises(AssertionError, match="T1 does not hold"):
        assert_conforms(file, settings={"name": "missing/folder/log.txt"})


def test_an_unsound_plugin_fails_with_every_finding_as_its_text(tmp_path: Path) -> None:
    path = write_unsound("tracker", "truncates", tmp_path)
    (line,) = fault_lines(path)
    with pytest.raises(AssertionError) as failure:
        assert_conforms(str(path))
    text = str(failure.value)
    assert text.startswith("tracker 'notes':\nT5 does not hold: it goes on in the folder")
    assert f"{path}:{line}: made again, it emptied log.txt" in text
    assert "to fix it: create folders with exist_ok=True, and append to files" in text
    assert "why it matters: A resumed run" in text


def test_a_plugin_that_cannot_be_loaded_says_why() -> None:
    broken = FIXTURES / "plugins" / "raises_at_import.py"
    with pytest.raises(PluginError, match="not loaded: plugin raises_at_import .*ModuleNotFound"):
        check_plugin(str(broken))
    with pytest.raises(PluginError, match="registers no algorithm"):
        check_plugin(str(FIXTURES / "sound" / "tracker.py"), kind="algorithm")
    with pytest.raises(UnknownNameError, match="Did you mean 'jsonl'"):
        check_plugin("json1")


def test_a_case_per_criterion_fails_for_its_own_alone(tmp_path: Path) -> None:
    cases = conformance_cases(str(write_unsound("tracker", "pops", tmp_path)))
    assert [str(case).partition(" ")[0] for case in cases] == [
        f"tracker:notes:T{i}" for i in range(1, 7)
    ]
    for case in cases[:-1]:
        case.check()
    with pytest.raises(AssertionError, match="T6 does not hold: it leaves the metrics as they are"):
        cases[-1].check()


CASES = conformance_cases("jsonl", kind="tracker")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parametrised_as_authors_write_it(case: searchrl.testing.ConformanceCase) -> None:
    case.check()


def test_public_names_are_all_there_and_cost_nothing_to_import() -> None:
    assert set(searchrl.testing.__all__) <= set(dir(searchrl.testing))
    code = (
        "import sys, searchrl.testing; "
        "from searchrl.testing import assert_conforms, reward_cases, Says, PASSAGES, STEPS; "
        "reward_cases(); print({'torch', 'pytest', 'hypothesis'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'assert_conform'"):
        _ = searchrl.testing.assert_conform  # type: ignore[attr-defined]
