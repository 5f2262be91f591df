"""Traces from questions, and the environment `facts`: what may be in which split."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from searchrl_r3.facts import (
    _UNSEEN,
    HELD_OUT,
    HELD_OUT_PAIRS,
    RELATIONS,
    UNSEEN_RELATION,
    FactsEnv,
    make_country,
)
from searchrl_r3.traces import build, rows_of, yields

from searchrl import ConfigError, DataError, make_env
from searchrl.cli import main
from searchrl.testing import assert_conforms

PACKAGE = Path(__file__).parents[1]
R3, PLUGINS = {"name": "r3"}, ["searchrl_r3"]


@pytest.fixture(scope="module")
def facts() -> FactsEnv:
    made: Any = make_env("facts", plugins=["searchrl_r3"]).unwrapped
    return made  # type: ignore[no-any-return]


def test_names_are_in_one_split(facts: FactsEnv) -> None:
    names = {
        split: {f.subject for n in range(40) for f in make_country(0, split, n).values()}
        for split in facts.splits
    }
    assert not names["train"] & (names["test"] | names["validation"])
    assert not names["validation"] & names["test"]


def test_what_is_held_out_is_in_test_tasks_alone(facts: FactsEnv) -> None:
    unseen = {one: re.compile(re.sub(r"\\{\w\\}", ".+", re.escape(one))) for one in _UNSEEN}
    found = {}
    for split in ("train", "test"):
        tasks = [facts.make_task(split, index) for index in range(400)]
        chains = [[name.split("/")[0] for name in task.gold_ids] for task in tasks]
        found[split] = (
            {key for chain in chains for key in chain} & HELD_OUT,
            {pair for chain in chains for pair in pairwise(chain)} & HELD_OUT_PAIRS,
            {one for one, text in unseen.items() for t in tasks if text.search(t.question)},
        )
        assert {len(chain) for chain in chains} == {2, 3}
        assert any(UNSEEN_RELATION in task.slices for task in tasks) == (split == "test")
    assert found["train"] == (set(), set(), set())
    assert found["test"][0] == HELD_OUT and len(found["test"][1]) == len(HELD_OUT_PAIRS)
    assert len(found["test"][2]) > len(_UNSEEN) / 2
    assert facts.make_task("test", 3) == facts.make_task("test", 3)


def test_passages_have_a_style_and_questions_and_the_oracle_do_not(facts: FactsEnv) -> None:
    wordings = {one.key: (one.facts[0], one.descriptions[0]) for one in RELATIONS}
    said, asked, words = [], [], set[str]()
    for number in range(60):
        for (key, subject), fact in make_country(0, "train", number).items():
            if key in wordings:
                text = wordings[key][0].format(s=subject, o=fact.object)
                said.append(fact.passage.text.casefold() == f"{text}.".casefold())
            else:
                words.add(key)
        task = facts.make_task("train", number)
        for gold, queries in zip(task.gold_ids, task.meta["queries"], strict=True):
            key, subject = gold.split("/")
            if key in wordings:
                asked.append(queries[0] in wordings[key][1].format(s=subject))
    assert 0.7 < sum(said) / len(said) < 0.8 and 0.2 < sum(asked) / len(asked) < 0.5
    assert len(words) == 120  # no country has the made-up words of another


def test_the_oracle_writes_what_is_worth_imitating() -> None:
    written = build({"name": "facts"}, "oracle", 40, protocol=R3, plugins=PLUGINS)
    rows = [*rows_of(written, "oracle")]
    assert len(rows) > 30 and len({json.dumps(row["turns"]) for row in rows}) == len(rows)
    assert all(row["writer"].startswith("oracle: it knows the gold passages") for row in rows)
    assert {row["hops"] for row in rows} == {2, 3}
    for row in rows:
        texts = [turn["text"] for turn in row["turns"]]
        assert [text.split(":")[0] for text in texts] == [
            f"Step {n + 1}" for n in range(len(texts))
        ]
        assert "The final answer:" in texts[-1] and "retrieval query" in texts[-2]
    told = yields(written)
    assert sum(one.kept for one in told) == len(rows) and sum(one.played for one in told) == 40


def _files(folder: Path, test_question: str, test_gold: str) -> dict[str, str]:
    def row(name: str, question: str, gold: str) -> str:
        return json.dumps(
            {"id": name, "question": question, "answer": "Petrel", "supporting_ids": [gold]}
        )

    train = [row(f"q{n}", f"Who sails ship {n}?", f"p{n}") for n in range(4)]
    (folder / "train.jsonl").write_text("\n".join(train))
    (folder / "test.jsonl").write_text(row("t", test_question, test_gold))
    rows = [{"id": f"p{n}", "title": f"Ship {n}", "text": "The Petrel."} for n in range(6)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {
        "name": "corpus",
        "questions": f"{folder}/train.jsonl",
        "test_questions": f"{folder}/test.jsonl",
        "corpus": f"{folder}/corpus.jsonl",
    }


@pytest.mark.parametrize(
    ("question", "gold", "fault"),
    [
        ("Who?", "p2", "a gold passage of it is in the test split"),
        ("Who?", "p5", ""),
    ],
)
def test_a_gold_passage_of_the_test_split_never_enters(
    question: str, gold: str, fault: str, tmp_path: Path
) -> None:
    written = build(_files(tmp_path, question, gold), "oracle", 9, protocol=R3, plugins=PLUGINS)
    by_question = {one.task.question: one.fault for one in written}
    assert by_question["Who sails ship 2?"] == fault
    assert not any(by_question[f"Who sails ship {n}?"] for n in (0, 1, 3))
    asked = [row["prompt"] for row in rows_of(written, "oracle")]
    assert any("ship 2" in prompt for prompt in asked) == (not fault)


@pytest.mark.parametrize("question", ["Who sails ship 2?", "who  sails SHIP 2?"])
def test_a_question_of_the_test_split_is_refused(question: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this test question is also a training question"):
        build(_files(tmp_path, question, "p5"), "oracle", 9, protocol=R3, plugins=PLUGINS)


def test_the_command_writes_traces_that_sft_reads(tmp_path: Path) -> None:
    out = tmp_path / "traces.jsonl"
    args = ["--plugin", "searchrl_r3", "traces", "build", "--env", "multihop", "--num-tasks", "30"]
    done = CliRunner().invoke(main, [*args, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "2 hops  kept" in done.output and f"searchrl sft --traces {out}" in done.output
    told = json.loads(out.with_suffix(".yield.json").read_text())
    assert sum(one["kept"] for one in told) == len(out.read_text().splitlines())
    from searchrl.programs.traces import load_traces

    assert all(trace.turns for trace in load_traces(out))


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "step-agents.md"
    block = re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    quick = {
        "sft": "--set sft.stages.0.steps=1 --set eval.num_tasks=2",
        "train": "--max-steps 1 --set eval.num_tasks=2 --set rollout.prompts_per_step=2",
    }
    for line in block.splitlines()[1:]:
        words = line.removeprefix("searchrl ").split()
        args = ["--plugin", "searchrl_r3", *words, *quick.get(words[0], "").split()]
        done = CliRunner().invoke(main, args)
        assert done.exit_code == 0, (line, done.output)
    with gzip.open(tmp_path / "runs/steps/rollouts/step_000001.jsonl.gz", "rt") as lines:
        turns = json.loads(next(lines))["turns"]
    assert [one["score"] for one in turns] == [0.0] * len(turns)
    assert (tmp_path / "runs/steps/report/index.html").is_file()


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no writer 'me'; expected one of oracle"):
        build({"name": "facts"}, "me", 1, protocol=R3, plugins=PLUGINS)
    with pytest.raises(ConfigError, match="does not tell its gold passages.*--writer policy"):
        build({"name": "regulations"}, "oracle", 1, protocol=R3, plugins=PLUGINS)
    args = ["--plugin", "searchrl_r3", "traces", "build", "--env", "facts", "--writer", "endpoint"]
    done = CliRunner().invoke(main, [*args, "--out", str(tmp_path / "t.jsonl")])
    assert done.exit_code != 0 and "needs --url and --model" in done.output


def test_tiny_means_the_policy_and_the_recipe_makes_one_of_its_shape() -> None:
    tiny = ["train", "--env", "facts", "--model", "tiny", "--dry-run", "--json"]
    done = CliRunner().invoke(main, ["--plugin", "searchrl_r3", *tiny])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["model"].startswith("searchrl_r3:assets/tiny")
    plan = ["sft", "--config", str(PACKAGE / "cold_start.yaml"), "--dry-run", "--json"]
    done = CliRunner().invoke(main, plan)
    assert done.exit_code == 0, done.output
    shape = yaml.safe_load((PACKAGE / "cold_start.yaml").read_text("utf-8"))["model"]["scratch"]
    made = json.loads((PACKAGE / "searchrl_r3/assets/tiny/config.json").read_text("utf-8"))
    assert all(made[key] == shape[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    assert made["num_hidden_layers"] == shape["num_layers"]


def test_the_environment_passes_its_check() -> None:
    assert_conforms("facts", kind="env", plugins=["searchrl_r3"])
