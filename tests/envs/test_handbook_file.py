"""Fixed handbooks: the demo, questions of a user, a user's own files and their faults."""

import re
from pathlib import Path

import pytest
from playing import PROTOCOL, make_env, play

import searchrl  # noqa: F401  # registers the Gymnasium ids
from searchrl.envs.regulations import RegulationsEnv, make_expert
from searchrl.envs.regulations.questions import LOOKUP, NOT_REGULATED, TWO_HOP
from searchrl.envs.regulations.world.names import school_names
from searchrl.envs.regulations.world.searching import content_words
from searchrl.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def env() -> RegulationsEnv:
    return make_env()


def test_demo_handbook_is_readable_and_the_expert_answers_it() -> None:
    for env in (make_env(), make_env(handbook="demo")):
        count = env.num_tasks("demo")
        games = [play(env, make_expert, split="demo", index=i) for i in range(count)]
        assert len(games) >= 12 and {g.task.kind for g in games} == {LOOKUP, TWO_HOP, NOT_REGULATED}
        assert all(game.reward == 1.0 for game in games)
        articles = env.passages(games[0].task)[1]
        assert len(articles) >= 60
        assert all(12 <= len(article.text.split()) <= 30 for article in articles)
    assert make_env(handbook="demo").num_tasks("test") == len(games)
    assert games[0].task.meta["school"] not in school_names(0)


def test_a_user_may_ask_about_the_demo_or_a_generated_school(env: RegulationsEnv) -> None:
    prompt, info = env.reset(options={"question": "Who runs the student radio?", "split": "demo"})
    assert "Thistlemere" in prompt and info["task"].answers == ()
    expert = make_expert(env, info["task"], PROTOCOL)
    assert "Linus Fenn" in env.step(expert.act(prompt))[0]
    prompt, info = env.reset(options={"question": "Why?", "split": "test", "school": 7})
    assert env.school("test", 7).name in prompt
    with pytest.raises(ConfigError, match="schools 0 to 249"):
        env.reset(options={"question": "Why?", "split": "test", "school": 250})
    query = content_words("How many days can I keep a library book?")
    assert query == "days can I keep a library book"


MARKDOWN = (
    "# Mill School\nAbout it.\n\n## Dogs\nDogs stay\noutside.\n\n## Cats\nCats sleep in room 5."
)
QUESTIONS = '{"question": "Where do cats sleep?", "answer": "5", "articles": ["Cats"]}\n'


def test_a_handbook_of_ones_own_with_questions(tmp_path: Path) -> None:
    book, rows = tmp_path / "book.md", tmp_path / "q.jsonl"
    book.write_text(MARKDOWN, encoding="utf-8")
    rows.write_text(QUESTIONS + '\n{"question": "Is there tea?", "answer": "not regulated"}\n')
    env = make_env(handbook=book, questions=rows)
    assert [env.num_tasks(split) for split in env.splits] == [2, 2, 2, 2]
    games = [play(env, make_expert, split="test", index=i) for i in range(2)]
    assert [(g.task.kind, g.reward) for g in games] == [("lookup", 1.0), ("not_regulated", 1.0)]
    assert "handbook of Mill School" in games[0].observations[0]
    assert env.passages(games[0].task)[1][0].text == "Dogs stay outside."
    as_json = tmp_path / "book.json"
    as_json.write_text('[{"id": "x", "title": "Dogs", "text": "Outside."}]')
    env = make_env(handbook=str(as_json))
    prompt, info = env.reset(options={"question": "Where are dogs?"})
    assert [p.id for p in env.passages(info["task"])[1]] == ["x"] and "of book;" in prompt
    with pytest.raises(ConfigError, match="has no tasks"):
        env.reset()


@pytest.mark.parametrize(
    ("name", "text", "messages"),
    [
        ("a.md", "## A\nx\n\n## B\n\n## C\n", [r"a\.md:4: article 'B'", r"a\.md:6: article 'C'"]),
        ("a.txt", "x", ["unknown kind of handbook"]),
        ("a.json", '[\n{"text": "ok"},\n{"title": 3}\n]', [r"a\.json:2: 'title' must be text"]),
        ("a.json", '{"rules": 1}', [r"a\.json:1: has neither 'text' nor 'contents'"]),
        ("a.json", '{"articles": [1]}', [r"a\.json: 'articles' must be a list"]),
        ("a.json", '[{"id": "x", "text": "a"},\n{"id": "x", "text": "b"}]',
         [r"json:2: duplicate id 'x', first used at .*json:1"]),
        # Questions about the demo handbook.
        ("q.json", '{"question": ""}\n\n{"question": "a", "answer": []}',
         [":1: 'question'", ":2: 'answer'"]),
        ("q.json", '[{"question": "a", "answer": "b",\n"articles": "No"}]',
         [r":1: 'articles' names"]),
        ("q.json", '{"question": "a"\n', ["the file is cut short"]),
    ],
)  # fmt: skip
def test_bad_rows_are_all_named_with_their_line(
    tmp_path: Path, name: str, text: str, messages: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    files = {"handbook": "demo", "questions": path} if name == "q.json" else {"handbook": path}
    with pytest.raises(DataError) as caught:
        make_env(**files)
    assert all(re.search(message, str(caught.value)) for message in messages), caught.value


def test_missing_files_and_questions_without_a_handbook_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.md: no such file; expected a handbook: Markdown"):
        make_env(handbook=tmp_path / "none.md")
    with pytest.raises(ConfigError, match=r"env\.questions needs env\.handbook"):
        make_env(questions=tmp_path / "q.json")
