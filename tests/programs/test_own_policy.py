"""An environment brings a small policy for a protocol: `--model tiny` then means that one."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import MICRO_SETTINGS, complaint, succeed
from reseal import unfinish

from searchrl.programs.setup.planning import plan_run
from searchrl.report.tokens import open_texts
from searchrl.run_folder import Run

pytestmark = pytest.mark.usefixtures("threads_restored")

NAME = "brought:assets/tiny"
PLUGIN = """
from searchrl import hookimpl

@hookimpl
def register_envs(register):
    register("homely", "searchrl.envs.regulations:RegulationsEnv", policies=POLICIES)
"""
MICRO = [part for setting in MICRO_SETTINGS for part in ("--set", setting)]


@pytest.fixture
def package(tmp_path: Path, micro_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a policy in it. Its code never runs: it would end the test."""
    folder = tmp_path / "site" / "brought"
    shutil.copytree(micro_model, folder / "assets" / "tiny")
    (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def write_plugin(folder: Path, policies: object = None) -> str:
    path = folder / "homely.py"
    own = {"think-search-answer": NAME} if policies is None else policies
    path.write_text(PLUGIN.replace("POLICIES", repr(own)), "utf-8")
    return str(path)


def planned(command: str, plugin: str, *flags: str) -> dict[str, Any]:
    words = [command, "--plugin", plugin, "--env", "homely", "--model", "tiny", *flags]
    plan: dict[str, Any] = json.loads(succeed(*words, "--dry-run", "--json").stdout)
    return plan


@pytest.mark.parametrize("command", ["train", "sft"])
def test_tiny_is_the_policy_of_the_environment_and_says_so(
    package: Path, tmp_path: Path, command: str
) -> None:
    plan = planned(command, write_plugin(tmp_path))
    assert plan["config"]["model"]["name"] == NAME and plan["config"]["preset"] == "tiny"
    assert plan["model"].startswith(f"{NAME} (embedded, 0.0 M")
    (note,) = plan["notes"]
    assert note.startswith("model: tiny → the policy that env 'homely' (plugin homely) brings for")
    assert "protocol 'think-search-answer'" in note and plan["model"] in note
    assert plan["warnings"] == []


@pytest.fixture
def own_run(package: Path, tmp_path: Path) -> Path:
    run = tmp_path / "run"
    words = ["--plugin", write_plugin(tmp_path), "--env", "homely", "--model", "tiny"]
    result = succeed("train", *words, *MICRO, "--max-steps", "1", "--run-dir", run)
    assert f"brings for protocol 'think-search-answer': {NAME}" in " ".join(result.output.split())
    return run


def test_a_resumed_run_wants_the_policy_it_began_with_and_is_read_without_it(
    own_run: Path, package: Path
) -> None:
    (weights,) = Run.open(own_run).provenance["weights"].items()
    assert weights[0] == NAME and len(weights[1]) == 64
    config = package / "assets" / "tiny" / "generation_config.json"
    config.write_text(config.read_text().replace("{", '{"note": 1,', 1))
    unfinish(own_run)
    said = complaint("train", "--resume", own_run)
    assert f"the embedded policy '{NAME}' was {weights[1][:12]} and is" in said
    run = Run.open(own_run)
    assert run.config.model.name == NAME
    shutil.rmtree(package)
    assert open_texts(run).path is not None
    succeed("eval", own_run, "--num-tasks", "2", "--no-forced")
    again = plan_run({"init_from": str(own_run)})
    assert again.model.is_tiny and again.config.preset == "tiny" and again.model.embedded == ""
    said = complaint("train", "--resume", own_run)
    assert f"there is no model '{NAME}'" in said
