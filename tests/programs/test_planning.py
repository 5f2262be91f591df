"""A run is decided once: what was found is carried, not looked for again."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from reseal import reseal, unfinish

from searchrl.cli import main
from searchrl.engine.learning.checkpoint import list_checkpoints

pytestmark = pytest.mark.usefixtures("threads_restored")

DECISIONS = {
    "resolve_model": ("searchrl.engine.model.loading", "searchrl.programs.setup.planning"),
    "resolve_device": ("searchrl.engine.model.loading", "searchrl.programs.setup.planning"),
    "choose_folder": (
        "searchrl.run_folder",
        "searchrl.programs.train",
        "searchrl.programs.sft",
        "searchrl.cli.dry_run",
    ),
    "make_worlds": (
        "searchrl.engine.rollout.worlds",
        "searchrl.programs.setup.session",
        "searchrl.programs.sft",
        "searchrl.programs.evaluate",
        "searchrl.programs.agent",
        "searchrl.cli.dry_run",
    ),
}
"""What is decided, and every module that has a name for it."""


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    def counting(name: str, real: Any) -> Any:
        def decide(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return real(*args, **kwargs)

        return decide

    for name, modules in DECISIONS.items():
        real = getattr(import_module(modules[0]), name)
        for module in modules:
            monkeypatch.setattr(f"{module}.{name}", counting(name, real))
    return counts


STAGE = ["sft.stages=[{steps: 1, batch_size: 2}]", "rollout.max_turn_tokens=200"]
SFT = [part for setting in STAGE for part in ("--set", setting)]


@pytest.mark.parametrize(
    ("command", "flags", "num_folders"),
    [
        ("train", [], 1),
        ("train", ["--dry-run"], 1),
        ("sft", SFT, 1),
        ("bench", ["--steps", "1"], 0),
        ("eval", [], 0),
    ],
    ids=["train", "dry run", "sft", "bench", "eval"],
)
def test_model_device_folder_and_worlds_are_found_once(
    command: str,
    flags: list[str],
    num_folders: int,
    micro_flags: list[str],
    decided: Counter[str],
    tmp_path: Path,
):
    place = micro_flags.index("--max-steps")
    own = micro_flags if command == "train" else micro_flags[:place] + micro_flags[place + 2 :]
    where = ["--run-dir", str(tmp_path / "run")] if num_folders else []
    result = CliRunner().invoke(main, [command, *own, *flags, *where])
    assert result.exit_code == 0, result.output
    once = dict.fromkeys(("resolve_model", "resolve_device", "make_worlds"), 1)
    assert decided == Counter(once | {"choose_folder": num_folders})


def test_an_agent_finds_its_model_once(micro_run: Path, decided: Counter[str]):
    result = CliRunner().invoke(main, ["ask", str(micro_run), "When does the library close?"])
    assert result.exit_code == 0, result.output
    assert decided["resolve_model"] == decided["resolve_device"] == decided["make_worlds"] == 1


@pytest.mark.parametrize(("other", "state"), [("sft", {"step": 1}), ("train", {"demos": 2})])
def test_a_run_of_the_other_program_is_not_continued(
    micro_run: Path, tmp_path: Path, other: str, state: dict[str, int]
):
    """`sft --resume` trained the policy of a `train` run on, on demonstrations."""
    run = Path(shutil.copytree(micro_run, tmp_path / "run"))
    (list_checkpoints(run)[-1] / "state.json").write_text(json.dumps(state))
    reseal(run)
    unfinish(run)
    result = CliRunner().invoke(main, [other, "--resume", str(run)])
    way_on = {"sft": "train", "train": "sft"}[other]
    assert result.exit_code > 0
    assert f"is a run of `searchrl {way_on}`; continue it with: searchrl {way_on}" in result.output
