"""A policy whose weights are here, as reformulator and as writer of questions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from control_toy import QUESTIONS, write_beir
from searchrl_control.collections.judged import read_judged
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.reformulate import weights
from searchrl_control.reformulate.weights import load_weights
from searchrl_control.reformulate.writer import read_line

from searchrl import ConfigError, DamagedError, PolicyError
from searchrl.cli import main
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.run_folder.sealing import write_checksums


def test_the_same_weights_always_write_the_same() -> None:
    first, second = load_weights("tiny"), load_weights(str(find_packaged(EMBEDDED)))
    assert first.key == second.key
    said = first.ask("Where does salt come from?")
    assert said.strip() and said == second.ask("Where does salt come from?")
    assert said != first.ask("Who makes honey?") or said == second.ask("Who makes honey?")


def test_a_run_and_a_model_without_a_template_are_asked(tmp_path: Path) -> None:
    tiny = find_packaged(EMBEDDED)
    assert tiny is not None
    shutil.copytree(tiny, tmp_path / "run" / "policy")
    (tmp_path / "run" / "config.yaml").write_text("{}", "utf-8")
    write_checksums(tmp_path / "run" / "policy")
    assert load_weights(str(tmp_path / "run")).ask("salt") == load_weights("tiny").ask("salt")
    plain = tmp_path / "plain"
    shutil.copytree(tiny, plain)
    (plain / "chat_template.jinja").unlink()
    assert load_weights(str(plain)).ask("salt").strip()


def test_what_writes_no_text_is_refused(tmp_path: Path) -> None:
    for name, said in (
        ("scripted:expert", "replays the tasks of its own environment"),
        ("endpoint:http://localhost:1/v1", "env.reformulator=endpoint"),
        (str(tmp_path / "nowhere"), "there are no weights at"),
        (str(tmp_path), "there are no weights at"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_weights(name)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}", "utf-8")
    with pytest.raises((PolicyError, DamagedError)):
        load_weights(str(broken)).ask("salt")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The prompts that the model gets; it answers with a thought and a query."""
    prompts: list[str] = []

    def answer(self: Any, prompt: str) -> str:
        prompts.append(prompt)
        return "<think>\nWhat do bees do?\n</think>\nNew query: bees in spring"

    monkeypatch.setattr(weights._Model, "ask", answer)
    yield prompts


def test_a_policy_narrows_and_broadens_and_is_asked_once(
    toy: dict[str, Any], asked: list[str], tmp_path: Path
) -> None:
    settings = {**toy, "cache": str(tmp_path), "reformulator": "policy", "policy": "tiny"}
    for topk in (10, 9):  # two worlds, one memory on disk
        env = RetrievalControlEnv(**settings, topk=topk)
        env.reset(options={"split": "train", "index": 0})
        env.step(0)
        *_, info = env.step(env.action_names.index("Broad"))
        assert info["query"] == "bees in spring" and info["passages"][0].id == "bees"
        assert len(asked) == (1 if topk == 10 else len(asked))
    assert "where does salt come from" in asked[0]
    assert (tmp_path / "reformulations.sqlite").is_file()
    with pytest.raises(ConfigError, match=r"needs env\.policy"):
        RetrievalControlEnv(**{**settings, "policy": None})


def test_a_thought_is_no_query() -> None:
    assert read_line("<think>\nhm\n</think>\n\nQuery: salt and sea\nmore") == "salt and sea"
    assert read_line("<think> it never ends") == ""


def call(*words: str, fails: bool = False) -> str:
    own = ["--plugin", "searchrl_control", "control", "questions"]
    result = CliRunner().invoke(main, [*own, *words])
    assert (result.exit_code != 0) is fails and "Traceback" not in result.output, result.output
    return result.output


@pytest.fixture
def collection(toy: dict[str, Any], tmp_path: Path) -> list[str]:
    """The flags that name a collection whose test questions leave most passages alone."""
    ids = list(QUESTIONS)
    splits = {"train": ids[:5], "test": ids[5:]}  # the test asks about salt
    folder = write_beir(tmp_path / "toy", splits=splits)
    given = ("--set", f"env.model={toy['model']}", "--set", f"env.cache={toy['cache']}")
    return ["--collection", str(folder), *given]


def test_questions_become_the_training_questions_of_a_folder(
    collection: list[str], toy: dict[str, Any], tmp_path: Path
) -> None:
    said = call(str(tmp_path / "made"), *collection, "--count", "9", "--seed", "2")
    found = read_judged("made", tmp_path / "made")
    assert found.halves is None and [one.id for one in found.questions["test"]] == ["q-fish"]
    made = found.questions["train"]
    assert f"{len(made)} of 9 questions" in said
    assert not any("salt" in one.qrels for one in made)
    env = RetrievalControlEnv(**{**toy, "collection": str(tmp_path / "made")})
    assert env.num_tasks("train") == len(made)
    assert "is there already" in call(str(tmp_path / "made"), *collection, fails=True)


def test_questions_of_any_policy_are_checked_and_what_leaks_is_kept_with_the_reason(
    collection: list[str], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "made"
    replies = iter(["what keeps fish", *["who works in a hive"] * 99])
    monkeypatch.setattr(weights._Model, "ask", lambda self, prompt: next(replies))
    said = call(str(out), *collection, "--count", "2", "--kind", "single", "--writer", "tiny")
    assert "2 single, 0 multi, 0 adversarial" in said
    (left,) = map(json.loads, (out / "left_out.jsonl").read_text("utf-8").splitlines())
    assert left["text"] == "what keeps fish" and "nearly the test question" in left["reason"]
    monkeypatch.setattr(weights._Model, "ask", lambda self, prompt: "what keeps fish")
    words = (str(tmp_path / "none"), *collection, "--count", "2", "--writer", "tiny")
    assert "every question that was written leaks" in call(*words, fails=True)
    assert not (tmp_path / "none").exists()


def test_a_server_needs_the_name_of_a_model(collection: list[str], tmp_path: Path) -> None:
    out = str(tmp_path / "made")
    said = call(out, *collection, "--writer", "endpoint:http://localhost:1/v1", fails=True)
    assert "--writer endpoint:URL and --model NAME go together" in said
    assert "go together" in call(out, *collection, "--model", "x", fails=True)
