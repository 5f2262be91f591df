"""The agent: a run answers with its own configuration, in Python and on the command line."""

import json
import shutil
from pathlib import Path

import pytest
from reseal import reseal
from train_toy import TOY_PLUGIN

import searchrl
from searchrl.config import build_config
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import mix_key
from searchrl.errors import ConfigError, PolicyError, UnknownNameError
from searchrl.plugins import load_plugins
from searchrl.programs.agent import Answer, load_agent
from searchrl.run_folder import Run

QUESTION = "When does the library close?"


@pytest.fixture
def copied_run(micro_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(micro_run, tmp_path / "copied"))


def test_agent_of_a_run_answers_about_the_demo_handbook(micro_run: Path) -> None:
    agent = searchrl.load_agent(micro_run)
    rollout = agent.play(QUESTION)
    assert rollout.episode.task.split == "demo" and rollout.episode.task.question == QUESTION
    answer = agent.ask(QUESTION)
    assert answer.question == QUESTION
    assert answer.trace[0].text == rollout.episode.turns[0].text  # greedy
    json.dumps(answer.to_dict())
    agent.close()


def test_overrides_replace_the_runs_settings(micro_run: Path) -> None:
    agent = load_agent(micro_run, retriever="empty", seed=4)
    assert agent.config.tasks[0].retriever.name == "empty" and agent.config.seed == 4
    with pytest.raises(ConfigError, match="unknown key"):
        load_agent(micro_run, retreiver="empty")


def test_unfinished_run_answers_from_its_newest_checkpoint(copied_run: Path) -> None:
    shutil.rmtree(copied_run / "policy")
    agent = load_agent(copied_run)
    source = agent.driver.generator.policy.source  # type: ignore[attr-defined]
    assert Path(source).parent.parent == copied_run / "checkpoints"


def test_agent_of_a_checkpoint_has_its_weights_and_the_settings_of_its_run(micro_run: Path) -> None:
    checkpoint = micro_run / "checkpoints" / "step_000000"
    agent = load_agent(checkpoint)
    assert agent.config.init_from == str(checkpoint) and agent.config.run_dir is None
    assert agent.config.rollout == Run.open(micro_run).config.rollout
    assert agent.driver.generator.policy.source == str(checkpoint / "policy")  # type: ignore[attr-defined]


def test_answer_holds_queries_passages_and_trace() -> None:
    config = build_config({"policy": "scripted"})
    world = make_worlds(config, load_plugins(entry_points=False))[0]
    request = RolloutRequest("a", world, "test", 0, (mix_key(1),), script=world.script("expert"))
    rollout = make_scripted_driver(config).run([request])[0].rollouts[0]
    answer = Answer.of("what?", rollout.episode)
    assert answer.final_answer == rollout.episode.task.answers[0]
    assert len(answer.queries) == len(answer.trace) - 1 > 0
    assert {p.id for p in answer.passages} >= set(rollout.episode.task.gold_ids)
    told = answer.to_dict()
    assert told["trace"][0]["queries"] == [answer.queries[0]]
    assert told["passages"][0]["text"] in told["trace"][0]["observation"]


def test_what_cannot_be_asked_is_refused(micro_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the question is empty"):
        load_agent(micro_run).ask("  ")
    with pytest.raises(ConfigError, match="cannot answer free questions"):
        load_agent(micro_run, policy="scripted")
    with pytest.raises(PolicyError, match="does not exist"):
        load_agent(tmp_path / "nothing")


def test_env_that_ignores_questions_is_not_answered_about_something_else(micro_run: Path) -> None:
    agent = load_agent(micro_run, env="plain", reward="env", plugins=[str(TOY_PLUGIN)])
    with pytest.raises(ConfigError, match="env 'plain' .* takes no questions"):
        agent.ask(QUESTION)


def test_run_whose_installed_plugin_is_gone_names_it(copied_run: Path) -> None:
    config = build_config(Run.open(copied_run).config.to_dict(), {"env": "capitals"})
    (copied_run / "config.yaml").write_text(config.to_yaml())
    record = json.loads((copied_run / "provenance.json").read_text())
    names = {"env": ["capitals"]}
    gone = {"plugin": "searchrl-capitals", "distribution": "searchrl-capitals", "version": "1.2"}
    record["plugins"].append({**gone, "names": names})
    (copied_run / "provenance.json").write_text(json.dumps(record))
    reseal(copied_run)
    with pytest.raises(UnknownNameError, match="pip install 'searchrl-capitals==1.2'"):
        load_agent(copied_run)
