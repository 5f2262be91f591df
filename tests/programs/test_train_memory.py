"""What `train` says about memory and about small models, before the run and after it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from train_toy import Crash, settings

from searchrl.cli import main
from searchrl.engine.memory import forecast
from searchrl.errors import PolicyError
from searchrl.programs.train import train


class Listener(Crash):
    def plan(self, config: Any, facts: Mapping[str, Any]) -> None:
        self.facts = dict(facts)


def run(folder: Path, run_dir: Path, **more: Any) -> Listener:
    heard = Listener()
    train(settings(folder, run_dir, max_steps=1, **more), observer=heard)
    return heard


@pytest.mark.usefixtures("threads_restored")
class TestTrain:
    def test_refuses_before_it_loads_or_writes_anything(
        self, micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(forecast, "available", lambda device: 1 << 20)
        monkeypatch.setattr("searchrl.programs.setup.planning.load_policy", None)
        with pytest.raises(PolicyError, match="this run needs about .* on cpu, where 1.0 MB"):
            run(micro_model, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_dry_run_shows_the_plan(micro_flags: list[str]):
    text = CliRunner().invoke(main, ["train", *micro_flags, "--dry-run", "--details"])
    assert text.exit_code == 0 and text.output.splitlines()[-1].startswith("# fits: ")
    assert "# memory, KV slots: " in text.output
    result = CliRunner().invoke(main, ["train", *micro_flags, "--dry-run", "--json"])
    memory = json.loads(result.stdout)["memory"]
    assert memory["fits"] is True and memory["total"] > sum(memory["parts"].values()) / 2
    assert {"weights", "KV slots", "activations", "gradients"} <= memory["parts"].keys()
