"""Old runs and their plugins: what is missing or changed, and how to get it back.

Runs are made by `searchrl eval --policy scripted --run-dir`, which records what training records.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import call, complaint, succeed
from plugin_files import install
from reseal import reseal

from searchrl.config import build_config
from searchrl.errors import UnknownNameError
from searchrl.plugins import load_plugins
from searchrl.plugins.provenance import read_records
from searchrl.programs.agent import load_agent
from searchrl.programs.train import train
from searchrl.run_folder import Run

pytestmark = pytest.mark.thorough

PLUGIN = '''
import searchrl
from searchrl.envs.regulations import RegulationsEnv, make_expert


class Calm:
    """Full marks."""

    name, values, is_range = "calm", (0.0, 1.0), False

    def __call__(self, episode):
        return 1.0


@searchrl.hookimpl
def register_envs(register):
    register("rivers", RegulationsEnv, expert=make_expert)


@searchrl.hookimpl
def register_rewards(register):
    register("calm", Calm)
'''


def make_run(folder: Path, *flags: str) -> Path:
    run = folder / "run"
    command = "eval --policy scripted --num-tasks 2 --reward em --run-dir"
    succeed(*command.split(), run, *flags)
    # A config that says where it was written could not be given to another program.
    config = Run.open(run).config.model_copy(update={"run_dir": None})
    (run / "config.yaml").write_text(config.to_yaml())
    return run


def edit(run: Path, **changes: Any) -> None:
    config = build_config(Run.open(run).config.to_dict(), changes)
    (run / "config.yaml").write_text(config.to_yaml())


def pretend_training(run: Path, **state: object) -> None:
    """Make the folder look as if a model had been trained in it; `state` is of its checkpoint."""
    edit(run, policy="model", model={"name": "tiny"})
    checkpoint = run / "checkpoints" / "step_000001"
    for file in (run / "policy/config.json", checkpoint / "policy/x", checkpoint / "state.json"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(state))
    reseal(run)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages that holds `searchrl-rivers` 0.1.0."""
    folder = tmp_path / "site"
    install(folder, "searchrl-rivers", "0.1.0", {"srl_rivers": PLUGIN}, "rivers = srl_rivers")
    monkeypatch.delenv("SEARCHRL_NO_INSTALLED_PLUGINS")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("srl_rivers", None)


def remove(site: Path) -> None:
    sys.modules.pop("srl_rivers", None)
    shutil.rmtree(site)


def replace_release(site: Path, version: str, text: str) -> None:
    remove(site)
    install(site, "searchrl-rivers", version, {"srl_rivers": text}, "rivers = srl_rivers")
    # Two edits within a second may leave compiled code that looks current.
    shutil.rmtree(site / "__pycache__", ignore_errors=True)


LOST = (
    "The run had it from plugin searchrl-rivers 0.1.0. "
    "To get it back: `pip install 'searchrl-rivers==0.1.0'`"
)


def test_whoever_takes_a_run_whose_package_is_gone_hears_how_to_get_it_back(
    tmp_path: Path, site: Path
) -> None:
    run = make_run(tmp_path, "--env", "rivers")
    succeed("eval", run)
    pretend_training(run)
    remove(site)
    for arguments in (
        ["eval", run],
        ["train", "--resume", run],
        ["ask", run, "Where?"],
        ["play", "--config", run / "config.yaml"],
        ["train", "--config", run / "config.yaml", "--dry-run"],
    ):
        assert LOST in complaint(*arguments), arguments
    for program in (lambda: load_agent(run), lambda: train(resume=run)):
        with pytest.raises(UnknownNameError, match="pip install 'searchrl-rivers==0.1.0'"):
            program()
    pretend_training(run, demos={})
    assert LOST in complaint("sft", "--resume", run)


def test_other_release_or_other_code_is_named_with_both(tmp_path: Path, site: Path) -> None:
    run = make_run(tmp_path, "--env", "rivers")
    before = next(r for r in load_plugins().provenance() if r["plugin"] == "searchrl-rivers")
    replace_release(site, "0.2.0", PLUGIN)
    assert (
        f"changed: plugin searchrl-rivers was 0.1.0 (sha256 {before['sha256'][:12]}) when the run "
        "began and is 0.2.0 (sha256 " in succeed("eval", run).stderr
    )
    replace_release(site, "0.1.0", PLUGIN.replace("return 1.0", "return 0.0"))
    assert "is 0.1.0 (sha256 " in call("eval", run).stderr
    replace_release(site, "0.1.0", PLUGIN)
    assert "changed" not in call("eval", run).stderr


def test_how_it_was_installed_is_no_change_of_code(tmp_path: Path, site: Path) -> None:
    run = make_run(tmp_path, "--env", "rivers")
    record = site / "searchrl_rivers-0.1.0.dist-info" / "RECORD"
    record.write_text(
        f"{record.read_text()}\nsearchrl_rivers-0.1.0.dist-info/INSTALLER,sha256=1,2\n"
        "__pycache__/srl_rivers.cpython-311.pyc,,\n../../../bin/rivers,sha256=2,3\n"
    )
    assert "changed" not in call("eval", run).stderr


def test_plugin_file_that_is_gone_or_edited(tmp_path: Path) -> None:
    file = tmp_path / "rivers.py"
    file.write_text(PLUGIN)
    run = make_run(tmp_path, "--env", "rivers", "--plugin", str(file))
    (record,) = read_records(run, Run.open(run).config)[-1:]
    file.write_text(PLUGIN.replace("return 1.0", "return 0.0"))
    # What this user trusted when the run began is another text.
    assert str(file) in complaint("eval", run)
    result = succeed("eval", run, "--trust")
    assert f"was code (sha256 {record.owner.sha256[:12]})" in result.stderr
    assert f"restore {file} (sha256 {record.owner.sha256})" in result.stderr

    moved = tmp_path / "moved" / "rivers.py"
    moved.parent.mkdir()
    file.rename(moved)
    pretend_training(run)
    for arguments in (["eval", run], ["train", "--resume", run], ["ask", run, "?"]):
        assert f"there is no file {file}" in complaint(*arguments, "--trust")
    edit(run, policy="scripted")
    moved.write_text(PLUGIN)
    assert "changed" not in succeed("eval", run, "--plugin", moved).stderr
