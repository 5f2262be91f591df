"""Reformulators: the contract, what models write, weights that are here, servers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from control_toy import PASSAGES, QUESTIONS, make_library, write_toy
from searchrl_control.collections.judged import read_judged
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.games import ListGame
from searchrl_control.environment.settings import PUBLISHED, SETS, Action
from searchrl_control.searching import writer
from searchrl_control.searching.question import Question
from searchrl_control.searching.reformulators import Asked, Reformulator, Rewrite
from searchrl_control.searching.writer import Written, ask_weights, read_line

from searchrl import ConfigError, DamagedError, EndpointFailure, PolicyError
from searchrl.api_client import Request
from searchrl.cli import main
from searchrl.config.packaged import EMBEDDED, find_packaged
from searchrl.run_folder.manifest import CHECKSUMS, Manifest

ASKED = Asked("where does salt come from", {"salt": 1.0, "come": 1.0}, PASSAGES[:2])


class Own:
    """A reformulator of a user's own."""

    def narrow(self, asked: Asked) -> Rewrite:
        return Rewrite("salt of the sea", {"salt": 2.0, "sea": 0.1})

    def broaden(self, asked: Asked) -> Rewrite:
        return Rewrite("things from water")


def test_a_model_is_shown_the_question_and_what_was_found() -> None:
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return 'New query: "sea salt"\nBecause it is shorter.'

    written = Written(ask)
    assert written.narrow(ASKED) == written.broaden(ASKED) == Rewrite("sea salt")
    assert all(ASKED.question in prompt and "- Tolmere. The old" in prompt for prompt in prompts)
    assert "fewer" in prompts[0] and "more documents" in prompts[1]
    assert Written(lambda prompt: " ").narrow(ASKED).text == ASKED.question


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        ("sea salt", "sea salt"),
        ("\n\n  Query: sea  ", "sea"),
        ("`sea`", "sea"),
        ("", ""),
        ('""', ""),
        ("<think>\nhm\n</think>\n\nQuery: salt and sea\nmore", "salt and sea"),
        ("<think> it never ends", ""),
    ],
)
def test_the_first_line_that_says_anything_is_the_query(reply: str, line: str) -> None:
    assert read_line(reply) == line


def game_of(reformulator: Reformulator) -> ListGame:
    return ListGame(Question(make_library(), ASKED.question), SETS[PUBLISHED], reformulator)


def test_a_rewrite_of_unknown_words_changes_nothing() -> None:
    game = game_of(Written(lambda prompt: "zebra quagga"))
    begun = game.begin()
    after = game.play(begun, Action.NARROW)
    assert game.top(after, 8) == game.top(begun, 8) and after.text == begun.text


def test_text_and_weights_of_a_rewrite_are_searched() -> None:
    game = game_of(Own())
    narrow = game.play(game.begin(), Action.NARROW)
    terms = game.question.library.terms
    assert terms.weights_of(narrow.query) == {"salt": 2.0, "sea": pytest.approx(0.1)}
    game = game_of(Written(lambda prompt: "honey of bees"))
    first = game.top(game.play(game.begin(), Action.BROAD), 1)[0][0]
    assert game.question.library.passages[first].id == "bees"


def test_the_same_weights_always_write_the_same_also_as_a_run(tmp_path: Path) -> None:
    tiny = find_packaged(EMBEDDED)
    assert tiny is not None
    shutil.copytree(tiny, tmp_path / "run" / "policy")
    (tmp_path / "run" / "config.yaml").write_text("{}", "utf-8")
    policy = tmp_path / "run" / "policy"
    Manifest.of(policy, {}).write(policy / CHECKSUMS)
    said = ask_weights("tiny", tmp_path / "one")("Where does salt come from?")
    again = ask_weights(str(tmp_path / "run"), tmp_path / "two")("Where does salt come from?")
    assert said.strip() and said == again


def test_a_model_without_a_template_is_asked(tmp_path: Path) -> None:
    shutil.copytree(str(find_packaged(EMBEDDED)), tmp_path / "plain")
    (tmp_path / "plain" / "chat_template.jinja").unlink()
    assert ask_weights(str(tmp_path / "plain"), tmp_path / "kept")("salt").strip()


def test_what_writes_no_text_is_refused(tmp_path: Path) -> None:
    for name in ("endpoint:http://localhost:1/v1", str(tmp_path / "nowhere"), str(tmp_path)):
        with pytest.raises(ConfigError, match=r"no weights at.*env\.url=ADDRESS"):
            ask_weights(name, tmp_path / "kept")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}", "utf-8")
    with pytest.raises((PolicyError, DamagedError)):
        ask_weights(str(broken), tmp_path / "kept")("salt")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that the model gets; it answers with a thought and a query."""
    prompts: list[str] = []

    def answer(model: Any, prompt: str) -> str:
        prompts.append(prompt)
        return "<think>\nWhat do bees do?\n</think>\nNew query: bees in spring"

    monkeypatch.setattr(writer, "_generate", answer)
    return prompts


def broaden(settings: dict[str, Any]) -> tuple[str, str]:
    """Broad's search for the first question, and the first passage that it finds."""
    env = RetrievalControlEnv(**settings)
    env.reset(options={"split": "train", "index": 0})
    env.step(0)
    *_, info = env.step(env.action_names.index("Broad"))
    return info["query"], info["passages"][0].id


def test_a_policy_narrows_and_broadens_and_is_asked_once(
    toy: dict[str, Any], asked: list[str], tmp_path: Path
) -> None:
    settings = {**toy, "cache": str(tmp_path), "policy": "tiny"}
    for split_seed in (1, 2):  # two worlds, one memory on disk
        assert broaden({**settings, "split_seed": split_seed}) == ("bees in spring", "bees")
    assert len(asked) == 1 and "where does salt come from" in asked[0]


@pytest.mark.parametrize("reply", ["bees in spring", "  "])
def test_what_a_server_writes_is_searched_and_nothing_is_an_error(
    toy: dict[str, Any], monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    asked: list[Any] = []

    class Client:
        def __init__(self, *given: Any) -> None:
            asked.append(given[:2])

        def complete(self, request: Request) -> Any:
            asked.append(request.messages[-1].content)
            return SimpleNamespace(text=reply)

    monkeypatch.setattr(writer, "Client", Client)
    url, model = "http://localhost:1/v1", f"model of {reply}"
    settings = {**toy, "url": url, "endpoint_model": model}
    if not reply.strip():
        with pytest.raises(EndpointFailure, match="wrote nothing"):
            broaden(settings)
        return
    assert broaden(settings) == ("bees in spring", "bees")
    assert asked[0] == (url, model)
    assert len(asked) == 2 and "where does salt come from" in asked[1]


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
    folder = write_toy(tmp_path / "toy", splits)
    given = ("--set", f"env.model={toy['model']}", "--set", f"env.cache={tmp_path / 'cache'}")
    return ["--collection", str(folder), *given]


def test_questions_become_the_training_questions_of_a_folder(
    collection: list[str], tmp_path: Path
) -> None:
    said = call(str(tmp_path / "made"), *collection, "--count", "9", "--seed", "2")
    found = read_judged(tmp_path / "made")
    assert [one.id for one in found.questions["test"]] == ["q-fish"]
    made = found.questions["train"]
    assert f"{len(made)} of 9 questions" in said
    assert not any("salt" in one.qrels for one in made)
    assert "is not empty; name a new" in call(str(tmp_path / "made"), *collection, fails=True)


def test_questions_of_a_model_are_checked_and_what_leaks_is_kept_with_the_reason(
    collection: list[str], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "made"
    own = ("--set", "env.policy=tiny", "--count", "2")
    replies = iter(["what keeps fish", *["who works in a hive"] * 99])
    monkeypatch.setattr(writer, "_generate", lambda model, prompt: next(replies))
    said = call(str(out), *collection, *own, "--kind", "single")
    assert "2 single, 0 multi, 0 adversarial" in said
    left, *_ = map(json.loads, (out / "left_out.jsonl").read_text("utf-8").splitlines())
    assert left["text"] == "what keeps fish" and "nearly a test question" in left["reason"]
    monkeypatch.setattr(writer, "_generate", lambda model, prompt: "what keeps fish")
    words = (str(tmp_path / "none"), *collection, *own, "--set", f"env.cache={tmp_path / 'other'}")
    assert "every question that was written leaks" in call(*words, fails=True)
    assert not (tmp_path / "none").exists()
