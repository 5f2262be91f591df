"""The page on plan-then-search and examples/dag_r1_distill_7b.yaml: flags, keys, commands."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from exa_server import KEY, exa_server, searching
from searchrl_dag.exa.client import KEY_ENV, ExaRetriever
from searchrl_dag.multisource.own import OwnQuestionsEnv
from searchrl_dag.plans.protocol import SearchDag

import searchrl
from searchrl import load_plugins, load_yaml
from searchrl.cli import main
from searchrl.config import build_config, load_preset
from searchrl.config.keys import config_keys
from searchrl.contracts import Passage
from searchrl.envs.corpus import DEMO_FOLDER
from searchrl.retrieval import BM25Retriever

REPO = Path(__file__).resolve().parents[3]
PAGE = REPO / "docs" / "how-to" / "plan-then-search.md"
EXAMPLE = REPO / "examples" / "dag_r1_distill_7b.yaml"
PACKAGES = ("searchrl_dag", "searchrl_judge", "searchrl_wandb")

FLAGS = """
--model_name --output_dir --data_source --data_path --max_samples --difficulty --data_split
--openai_api_key --reward_model --exa_api_key --batch_size --max_steps --lr --lora_r --lora_alpha
--lora_dropout --lora_target_modules --num_generations --gradient_accumulation_steps --max_turns
--max_new_tokens --curriculum_steps --save_steps --use_wandb --wandb_api_key --wandb_project
--wandb_run_name --score_mode --push_to_hub --hub_model_id --hub_token --hub_private
--dataset_path --save_model --save_interval --gnews_api_key --google_api_key --micro_batch_size
--max_prompts --resume_from_checkpoint --use_vllm --vllm_server_host --vllm_server_port
"""
"""Of both published scripts: `add_argument` in train.py, then what RL/train_trl.py has besides."""


@pytest.fixture(autouse=True)
def packages_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that the example needs, uninstalled too."""
    for package in PACKAGES:
        monkeypatch.syspath_prepend(str(REPO / "plugins" / package.replace("_", "-")))


def rows() -> dict[str, str]:
    """The key of each flag in the table."""
    found = re.findall(r"^\| `(--\w+)` \| [^|]* \| `([^`]+)` \|", PAGE.read_text("utf-8"), re.M)
    assert len(found) == len(dict(found)), "a flag is there twice"
    return dict(found)


def commands() -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line for line in lines if line.startswith("searchrl ")]


def block(name: str) -> str:
    """The Python block of the page whose first line names it."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    (found,) = (one for one in blocks if one.startswith(f"# {name}\n"))
    return found


def call(*words: str) -> str:
    """The output of a command with the packages that are there."""
    there = [package for package in PACKAGES if find_spec(package)]
    loaded = [word for package in there for word in ("--plugin", package)]
    result = CliRunner().invoke(main, [*loaded, *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_every_flag_of_the_scripts_has_a_row_and_no_other() -> None:
    assert set(rows()) == set(FLAGS.split())


@pytest.mark.parametrize(("flag", "key"), sorted(rows().items()))
def test_the_key_of_a_row_is_there(flag: str, key: str) -> None:
    section, _, name = key.partition(".")
    if key.startswith("searchrl "):
        result = CliRunner().invoke(main, [key.split()[1], "--help"])
        assert result.exit_code == 0, f"{flag}: {key}"
    elif key.startswith("--"):
        assert key in CliRunner().invoke(main, ["train", "--help"]).output, flag
    elif section == "env":
        assert name in inspect.signature(OwnQuestionsEnv).parameters, f"{flag}: {key}"
    elif section in ("judge", "retriever"):
        assert name == "name" or name in load_yaml(EXAMPLE)[section], f"{flag}: {key}"
    else:
        assert key in {one.key for one in config_keys()}, f"{flag}: {key}"


def test_the_example_has_the_numbers_of_the_script() -> None:
    config = build_config(load_yaml(EXAMPLE))
    model, (task,) = config.model, config.tasks
    assert model.name == "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B" and model.adapter == "lora"
    assert (model.lora_r, model.lora_alpha, model.lora_dropout) == (16, 32, 0.05)
    assert model.lora_targets == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert config.optim.lr == 5e-6 and config.max_steps == 100 and config.checkpoint.every == 50
    assert config.rollout.group_size == 4 and config.rollout.prompts_per_step == 4 * 1 // 4
    assert config.rollout.max_turn_tokens == 1024 and task.env.settings["max_turns"] == 2
    assert task.reward == {
        0: "0.2*dag_judge+0.4*dag+0.4*format",
        30: "0.5*dag_judge+0.25*dag+0.25*format",
    }
    sources = [task.retriever, *(task.env.settings[name] for name in ("news", "academic"))]
    assert [dict(one).get("category") for one in sources[1:]] == ["news", "research paper"]
    assert task.retriever.name == "exa" and task.judge.settings["model"] == "gpt-4o-mini"


def test_what_the_example_writes_is_what_a_source_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    config = build_config(load_yaml(EXAMPLE))
    (task,) = config.tasks
    for named in (task.env.settings["news"], task.retriever.settings):
        settings = {key: value for key, value in dict(named).items() if key != "name"}
        assert ExaRetriever((), **settings, cache="off").form.max_chars == 500


@pytest.mark.parametrize(
    "more",
    [(), ("--set", "log.trackers=[{name: wandb, project: r-search-training}]")],
    ids=["as it is", "with W&B"],
)
def test_the_example_resolves_without_a_key_a_gpu_or_weights(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("searchrl_judge")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(KEY_ENV, raising=False)
    said = call("train", "--config", str(EXAMPLE), *more, "--dry-run", "--details")
    for line in (
        "lora_dropout: 0.05",
        "'30': 0.5*dag_judge",
        "max_nodes: 8",
        "name: multisource_qu",
    ):
        assert line in said
    assert ("project: r-search-training" in said) == bool(more)
    assert not list(tmp_path.iterdir())


def test_what_differs_is_told_with_our_defaults() -> None:
    config = build_config(load_preset("qwen3_4b_lora"))
    algorithm = load_plugins().get("algorithm", config.algorithm.name).make()
    settings = inspect.signature(OwnQuestionsEnv).parameters
    optim, protocol = config.optim, inspect.signature(SearchDag).parameters
    text = PAGE.read_text("utf-8")
    for row in (
        f"| {config.rollout.temperature}, so that log-probs are the sampler's own |",
        f"| the plan has at most 8 nodes | {protocol['max_nodes'].default} |",
        f"| `<{protocol['result'].default}>` | `protocol.result: r` |",
        f"| {optim.warmup_steps} steps (the preset of large models), {optim.max_grad_norm} |",
        f"0 in later versions | {algorithm.resolve(config.algorithm).beta} |",
    ):
        assert row in text, row
    assert settings["parent_results"].default is True and settings["max_turns"].default == 2


def test_commands_that_train_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("searchrl_judge")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEY_ENV, KEY)  # with questions of its own, a source is made at once
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "examples").symlink_to(REPO / "examples")
    write_town(tmp_path / "hotpot.jsonl")
    shown = [shlex.split(command)[1:] for command in commands() if " train " in command]
    assert len(shown) == 3
    for words in shown:
        call(*words, *(() if "--dry-run" in words else ("--dry-run",)))


def test_commands_that_search_record_and_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEY_ENV, KEY)
    record, replay = (shlex.split(command)[1:] for command in commands() if " eval " in command)
    with exa_server(searching(BM25Retriever(load_town()))) as (url, asked):
        small = ("--set", f"retriever.url={url}", "--num-tasks", "3")
        recorded = call(*record, *small)
        num_asked = len(asked)
        assert num_asked >= 3
        monkeypatch.delenv(KEY_ENV)
        assert figures(call(*replay, *small)) == figures(recorded)
        assert len(asked) == num_asked


def figures(output: str) -> list[str]:
    """The lines of a table of figures."""
    return [line for line in output.splitlines() if re.match(r"\s*(em|format|searched)\b", line)]


def load_town() -> list[Passage]:
    """The corpus of the demo."""
    rows = (DEMO_FOLDER / "corpus.jsonl").read_text("utf-8").splitlines()
    loaded = [json.loads(row) for row in rows]
    return [Passage(one["id"], one["text"], one.get("title", "")) for one in loaded]


def write_town(path: Path) -> None:
    """The questions of the demo under another name."""
    path.write_text((DEMO_FOLDER / "questions.jsonl").read_text("utf-8"), "utf-8")


def test_questions_of_the_page_are_read(tmp_path: Path) -> None:
    rows_of_page = re.findall(r"^```jsonl\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    path = tmp_path / "questions.jsonl"
    path.write_text(rows_of_page[0], "utf-8")
    (tmp_path / "town.jsonl").write_text('{"id": "a", "text": "Skarn"}', "utf-8")
    env = searchrl.make_env(
        "multisource_questions",
        plugins=["searchrl_dag"],
        questions=str(path),
        corpus=str(tmp_path / "town.jsonl"),
        test_frac=0.0,
        difficulty="hard",
    )
    assert env.unwrapped.num_tasks("train") == 1  # type: ignore[attr-defined]


# The export.


def lines_of(code: str) -> list[str]:
    return [line for line in code.splitlines() if line.strip() and not line.startswith("#")]


def test_the_program_has_twelve_lines_and_uses_transformers_alone() -> None:
    code = block("answer.py")
    assert len(lines_of(code)) <= 12
    assert re.findall(r"^(?:from|import) (\w+)", code, re.M) == ["transformers"]


LONG = {"max_turn_tokens": 500, "max_observation_tokens": 1000}
"""Limits that cut nothing, as the program has none."""


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_twelve_lines_of_transformers_give_the_turns_of_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["rollout.prompts_per_step=1", "rollout.group_size=2", "rollout.max_turn_tokens=16"]
    small += ["eval.num_tasks=1", "eval.num_tasks_during=1", "eval.forced=false"]
    flags = [word for one in small for word in ("--set", one)]
    call("train", "--env", "multisource", "--model", "tiny", "--max-steps", "1", "--lr", "1e-9",
         "--reward", "0.5*em+0.25*dag+0.25*format", *flags, "--run-dir", "run")  # fmt: skip
    call("export", "run", "exported", "--merge")
    names: dict[str, Any] = {"__name__": "page"}
    sources = block("search.py").replace(
        '("multisource")', "(\"multisource\", plugins=['searchrl_dag'])"
    )
    exec(sources, names)
    turns: list[str] = []
    search = names["search"]

    def listening(turn: str) -> str:
        turns.append(turn)
        return str(search(turn))

    names["search"] = listening
    exec(block("answer.py"), names)
    settings = {"eval": {"num_tasks": 1, "forced": False}, "rollout": LONG}
    played = searchrl.evaluate(
        {
            "env": "multisource",
            "plugins": ["searchrl_dag"],
            "model": "exported",
            "preset": "tiny",
            "device": "cpu",
            **settings,
        }
    )
    (rollout,) = played.rollouts
    episode = rollout.episode
    assert turns and turns == [turn.text for turn in episode.turns]
    assert names["answer"] == (episode.final_answer or "")
