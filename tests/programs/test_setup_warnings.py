"""Hopeless runs are announced before they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import succeed
from train_toy import Crash, settings

from searchrl.algorithms.builtin import make_grpo, make_reinforce_pp, make_rloo
from searchrl.algorithms.record import Algorithm
from searchrl.config import build_config
from searchrl.engine.memory import forecast
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError, PolicyError
from searchrl.plugins import load_plugins
from searchrl.programs.setup.warnings import ensure_can_learn, few_tasks
from searchrl.programs.train import train

REGISTRY = load_plugins(entry_points=False)


def rows(folder: Path, count: int, **more: Any) -> str:
    (folder / "c.jsonl").write_text('{"id": "a", "text": "The ferry is called Petrel."}')
    lines = [json.dumps({"question": f"q{i}?", "answer": "x"} | more) for i in range(count)]
    (folder / "q.jsonl").write_text("\n".join(lines))
    return f"env.questions={folder}/q.jsonl,env.corpus={folder}/c.jsonl"


def warnings_of(command: str, data: str) -> list[str]:
    flags = [part for one in data.split(",") for part in ("--set", one)]
    plan = json.loads(succeed(*command.split(), *flags, "--dry-run", "--json").stdout)
    return list(plan["warnings"])


def test_the_tiny_model_on_foreign_data_is_announced(tmp_path: Path) -> None:
    data = rows(tmp_path, 800)
    (warning,) = warnings_of("train --env corpus --model tiny", data)
    assert "taught school regulations only" in warning and "env 'corpus'" in warning
    assert "--model Qwen/Qwen3-0.6B" in warning
    # It may be taught something else, and it knows its own environment.
    assert warnings_of("sft --env corpus --model tiny", data) == []
    assert warnings_of("train --env regulations --model tiny", "seed=1") == []


def test_two_held_out_tasks_are_announced(tmp_path: Path) -> None:
    (warning,) = warnings_of("sft --env corpus --model tiny", rows(tmp_path, 6))
    assert "only 2 held-out tasks of env 'corpus' (split 'test')" in warning
    assert "give it more tasks (30 at least)" in warning
    config = build_config({"eval": {"num_tasks": 2}})
    (warning,) = few_tasks(config, make_worlds(config, REGISTRY))
    assert "raise eval.num_tasks" in warning


@pytest.mark.parametrize("make", [make_grpo, make_rloo, make_reinforce_pp])
def test_a_group_of_one_is_refused_where_nothing_can_be_learned(make: Any) -> None:
    config = build_config({"rollout": {"group_size": 1}})
    with pytest.raises(ConfigError, match="nothing can be learned: use --group-size 2 or more"):
        ensure_can_learn(config, make(), ())
    ensure_can_learn(build_config({"rollout": {"group_size": 2}}), make(), ())


def test_a_group_of_one_is_fine_for_a_baseline_of_the_step_and_for_replay() -> None:
    config = build_config({"rollout": {"group_size": 1}})
    loss = make_grpo().loss

    def centred(step: Any) -> list[float]:
        mean = sum(step.rewards) / len(step.rewards)
        return [reward - mean for reward in step.rewards]

    ensure_can_learn(config, Algorithm("batch", centred, loss), ())
    replay = Algorithm("replay", make_grpo().advantages, loss, extend=lambda groups, step: groups)
    ensure_can_learn(config, replay, ())


def test_a_reward_that_says_nothing_is_refused(tmp_path: Path) -> None:
    def check(reward: str, gold: list[str]) -> None:
        files = rows(tmp_path, 40, supporting_ids=gold).replace("env.", "").split(",")
        data = dict(part.split("=") for part in files)
        config = build_config({"env": {"name": "corpus", **data}, "reward": reward})
        ensure_can_learn(config, make_grpo(), make_worlds(config, REGISTRY))

    with pytest.raises(ConfigError, match="reward 'support_recall' says nothing .*'corpus'"):
        check("em+support_recall", [])
    check("em", [])
    check("em+support_recall", ["a"])


@pytest.mark.usefixtures("threads_restored")
def test_a_run_says_so_before_its_first_episode(micro_model: Path, tmp_path: Path) -> None:
    class Heard(Crash):
        def phase(self, name: str, done: int, total: int) -> None:
            if name.startswith("evaluate"):
                raise StopIteration  # enough was heard

    heard = Heard()
    with pytest.raises(StopIteration):
        train(settings(micro_model, tmp_path / "run"), observer=heard)
    assert any(note.startswith("warning: only 2 held-out tasks") for note in heard.notes)


def test_a_run_that_does_not_fit_is_refused_before_it_loads_or_writes_anything(
    micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(forecast, "available", lambda device: 1 << 20)
    monkeypatch.setattr("searchrl.programs.setup.planning.load_policy", None)
    with pytest.raises(PolicyError, match="this run needs about .* on cpu, where 1.0 MB"):
        train(settings(micro_model, tmp_path / "run"))
    assert not (tmp_path / "run").exists()
