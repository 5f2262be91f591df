"""Hopeless runs are announced before they start."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import succeed
from train_toy import Crash, settings

from searchrl.algorithms.builtin import (
    make_grpo,
    make_grpo_turns,
    make_reinforce_pp,
    make_rloo,
)
from searchrl.algorithms.record import Algorithm, Critic, Hooks
from searchrl.config import build_config
from searchrl.engine.memory import forecast
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.errors import ConfigError, PolicyError
from searchrl.plugins import load_plugins
from searchrl.programs.setup.session import Setup
from searchrl.programs.setup.warnings import (
    ensure_can_learn,
    few_tasks,
    note_turn_scores,
    unready_policy,
)
from searchrl.programs.train import train

REGISTRY = load_plugins(entry_points=False)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_critic_is_trained_in_float16_over_shards(dtype: str) -> None:
    layer = {"engine": {"sharding": "fsdp2"}, "model": {"dtype": dtype}}
    setup: Any = SimpleNamespace(config=build_config(layer), workers=SimpleNamespace(size=2))
    algorithm: Any = SimpleNamespace(critic=object(), hooks=Hooks(), branches=False)
    if dtype == "float32":
        assert Setup.is_to_shard(setup, algorithm)
        return
    with pytest.raises(ConfigError, match="no critic in float16"):
        Setup.is_to_shard(setup, algorithm)


def rows(folder: Path, count: int, **more: Any) -> str:
    (folder / "c.jsonl").write_text('{"id": "a", "text": "The ferry is called Petrel."}')
    lines = [json.dumps({"question": f"q{i}?", "answer": "x"} | more) for i in range(count)]
    (folder / "q.jsonl").write_text("\n".join(lines))
    return f"env.questions={folder}/q.jsonl,env.corpus={folder}/c.jsonl"


def warnings_of(command: str, data: str) -> list[str]:
    flags = [part for one in data.split(",") for part in ("--set", one)]
    plan = json.loads(succeed(*command.split(), *flags, "--dry-run", "--json").stdout)
    return list(plan["warnings"])


def test_a_critic_that_looks_ahead_is_refused_where_an_agent_acts() -> None:
    config = build_config({"env": "regulations"})
    (world,) = make_worlds(config, REGISTRY)
    world.is_served = True
    critic = Critic(lambda width: None, lr=1e-3)  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigError, match=r"set algorithm\.lam=1"):
        ensure_can_learn(config, replace(make_grpo(), critic=critic), [world])
    level = replace(make_grpo(), critic=replace(critic, looks_ahead=False))
    ensure_can_learn(config, level, [world])


def test_the_tiny_model_on_foreign_data_is_announced(tmp_path: Path) -> None:
    data = rows(tmp_path, 800)
    (warning,) = warnings_of("train --env corpus --model tiny", data)
    assert "env 'corpus'" in warning and "--model Qwen/Qwen3-0.6B" in warning
    # It may be taught something else, and it knows its own environment.
    assert warnings_of("sft --env corpus --model tiny", data) == []
    assert warnings_of("train --env regulations --model tiny", "seed=1") == []


def test_two_held_out_tasks_are_announced(tmp_path: Path) -> None:
    (warning,) = warnings_of("sft --env corpus --model tiny", rows(tmp_path, 6))
    assert "only 2 held-out tasks of env 'corpus' (split 'test')" in warning
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

    class Replay(Hooks):
        def extend(self, groups: Any, step: int) -> Any:
            return groups

    replay = Algorithm("replay", make_grpo().advantages, loss, hooks=Replay())
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


def test_turn_scores_that_nobody_reads_are_remarked_on() -> None:
    scored = SimpleNamespace(episode_scores=(0.5, 1.0), reward=1.5)
    plain = SimpleNamespace(episode_scores=None, reward=1.5)
    said = note_turn_scores(make_grpo(), [plain, scored])  # type: ignore[list-item]
    assert "algorithm 'grpo' reads the episode's" in said and "grpo_turns" in said
    assert note_turn_scores(make_grpo_turns(), [scored]) == ""  # type: ignore[list-item]
    assert note_turn_scores(make_grpo(), [plain]) == ""  # type: ignore[list-item]
    # 0.9 recorded, and 2.7 is what turns are paid.
    dear = SimpleNamespace(episode_scores=(0.9, 0.9, 0.9), reward=0.9)
    said = note_turn_scores(make_grpo_turns(), [plain, scored, dear])  # type: ignore[list-item]
    assert "do not add up" in said and "1 of 2 episodes, by up to 1.8" in said
    assert "turn_surplus" in said and "'grpo_turns'" in said


@pytest.mark.parametrize(
    ("invalid", "epochs", "expected"),
    [
        (0.2, None, []),  # of two turns: 90 %
        (0.3, None, ["85% of its turns are well-formed"]),
        (0.0, 0.4, ["seen 0.4 of an epoch"]),
        (0.3, 0.4, ["85% of its turns", "seen 0.4 of an epoch"]),
    ],
)
def test_a_policy_that_was_not_shown_the_format_is_announced(
    invalid: float, epochs: float | None, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build_config({"env": "regulations"})
    (world,) = make_worlds(config, REGISTRY)
    before: Any = {"turns": {"value": 2.0}, "invalid_turns": {"value": invalid}}
    rows = [{"metrics": {"epochs": {"value": epochs}}}, {"metrics": {}}]
    source = SimpleNamespace(read_metrics=lambda: SimpleNamespace(rows=rows))
    found = None if epochs is None else source
    monkeypatch.setattr("searchrl.programs.setup.warnings.find_source", lambda name: found)
    assert [*unready_policy(config, [world], before)] == []  # a protocol that asks for nothing
    monkeypatch.setattr(type(world.protocol), "min_format", 0.9, raising=False)
    said = [*unready_policy(config, [world], before)]
    assert len(said) == len(expected)
    assert all(part in one for part, one in zip(expected, said, strict=True))
    assert all("searchrl sft --env regulations --protocol" in one for one in said)
