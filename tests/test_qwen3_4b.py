"""What the page on Qwen3-4B says of a model that no test can load: figures and commands."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from command_line import succeed
from docs_runner import Block, read_blocks
from pytest import CaptureFixture, MonkeyPatch

from searchrl.config import RunConfig, build_config, load_yaml
from searchrl.core.trajectory import Trajectory
from searchrl.engine.memory.footprint import Footprint, find_footprint
from searchrl.engine.memory.forecast import predict
from searchrl.engine.memory.plan import MemoryPlan
from searchrl.engine.model.loading import ResolvedModel
from searchrl.engine.model.rendering import Renderer
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.drivers import make_scripted_driver
from searchrl.engine.rollout.rollout import Rollout
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import load_plugins

pytestmark = pytest.mark.thorough

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "how-to" / "qwen3_4b.md"
TEXT = PAGE.read_text("utf-8")
NUM_TASKS = 60
"""Tasks of a level in the table of tokens."""

FILES = ("qwen3_4b_24gb.yaml", "qwen3_4b_80gb.yaml")


ON_16_GB = {
    "model": {"quantize": "nf4"},
    "rollout": {"batch_size": 16},
    "eval": {"batch_size": 16},
}


def config_of(name: str, **changes: Any) -> RunConfig:
    return build_config(load_yaml(REPO / "examples" / name), changes)


def cells(first: str) -> list[str]:
    """The cells of the one row of a table that begins with this one."""
    (row,) = re.findall(rf"^\| {re.escape(first)} \| (.*) \|$", TEXT, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


# --- memory --------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def qwen3_4b(tmp_path_factory: pytest.TempPathFactory) -> Footprint:
    """That of the shape of Qwen/Qwen3-4B, which is the same for both files."""
    from transformers import Qwen3Config

    folder = tmp_path_factory.mktemp("qwen3_4b")
    shape = Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, vocab_size=151936,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True,
        max_position_embeddings=40960,
    )  # fmt: skip
    shape.save_pretrained(folder)
    model = ResolvedModel(str(folder), None, is_tiny=False)
    config = config_of(FILES[0])
    return find_footprint(config.model, model, torch.device("cuda"), is_offline=True)


def plan_of(config: RunConfig, footprint: Footprint) -> MemoryPlan:
    cuda = torch.device("cuda")
    return predict(config, footprint, cuda, available=None)


@pytest.mark.parametrize(
    ("row", "name", "changes", "card_gb"),
    [
        ("`qwen3_4b_24gb.yaml`", FILES[0], {}, 24),
        ("the same on 16 GB, as below", FILES[0], ON_16_GB, 16),
        ("`qwen3_4b_80gb.yaml`", FILES[1], {}, 80),
    ],
)
def test_memory_of_the_page_is_the_plan_and_leaves_room(
    qwen3_4b: Footprint, row: str, name: str, changes: dict[str, Any], card_gb: int
) -> None:
    plan = plan_of(config_of(name, **changes), qwen3_4b)
    sizes = (*plan.phases.values(), plan.total)
    assert cells(row) == [f"{size / 2**30:.1f}" for size in sizes]
    # What a card says is not all free, and predictions can be wrong by a sixth.
    assert plan.total / 2**30 * 7 / 6 <= card_gb - 0.6 + 1e-9, plan


# --- hours ---------------------------------------------------------------------------------
def block_after(language: str, heading: str) -> Block:
    line = TEXT[: TEXT.index(f"\n{heading}\n")].count("\n") + 1
    return next(b for b in read_blocks(PAGE) if b.language == language and b.line > line)


def test_hours_of_the_page_are_what_its_arithmetic_prints(
    monkeypatch: MonkeyPatch, capsys: CaptureFixture[str]
) -> None:
    monkeypatch.chdir(REPO)
    names: dict[str, Any] = {}
    exec(block_after("python", "### Hours").text, names)
    assert capsys.readouterr().out == block_after("text", "### Hours").text
    # Prompt, written, an observation and its maximum, those of an episode.
    prompt, *_, observed, _, _ = numbers(cells("`hard`"))
    assert (names["PROMPT"], names["OBSERVED"]) == (prompt, observed)


def test_arithmetic_of_the_page_has_the_shape_of_the_model(qwen3_4b: Footprint) -> None:
    text = block_after("python", "### Hours").text
    assert f"CACHE_BYTES = {qwen3_4b.cache_per_token:_}" in text
    (weights,) = re.findall(r"^WEIGHTS = (\S+)", text, re.MULTILINE)
    assert float(weights) == pytest.approx(qwen3_4b.plain_weights / 2, rel=0.005)


# --- tokens --------------------------------------------------------------------------------
def play_expert(shared_data: Path, level: str) -> list[Rollout]:
    """Episodes of the expert in the tokens of Qwen3, on the limits of the larger recipe."""
    from transformers import AutoTokenizer

    renderer = Renderer(AutoTokenizer.from_pretrained(shared_data / "qwen_tokenizer" / "qwen3"))
    config = config_of(FILES[1], env={"name": "regulations", "difficulty": level, "max_turns": 5})
    (world,) = make_worlds(config, load_plugins())
    driver, script = make_scripted_driver(config, renderer), world.script("expert")
    requests = [
        RolloutRequest(
            group_id=f"{i}", world=world, split="test", index=i, rng_keys=(i,), script=script
        )
        for i in range(NUM_TASKS)
    ]
    return [rollout for group in driver.run(requests) for rollout in group.rollouts]


def count_tokens(trajectories: list[Trajectory]) -> tuple[list[str], int, int]:
    """The row of the page, the longest observation and the longest episode."""
    pairs = [pair for t in trajectories for pair in pairwise(t.turns)]
    observed = [after.start - turn.stop for turn, after in pairs]
    lengths = [len(t.ids) for t in trajectories]
    prompts = [t.num_prompt_tokens for t in trajectories]
    written = [t.num_model_tokens for t in trajectories]
    row = [
        f"{mean(prompts):.0f}",
        f"{mean(written):.0f}",
        f"{mean(observed):.0f} (at most {max(observed):,})",
        f"{mean(lengths) - mean(prompts) - mean(written):,.0f}",
        f"{mean(lengths):,.0f} (at most {max(lengths):,})",
    ]
    return row, max(observed), max(lengths)


def numbers(texts: list[str]) -> list[float]:
    return [float(n.replace(",", "")) for n in re.findall(r"\d[\d,]*", " ".join(texts))]


@pytest.mark.parametrize("level", ["easy", "normal", "hard"])
def test_tokens_of_the_page_are_those_of_the_tokenizer(shared_data: Path, level: str) -> None:
    rollouts = play_expert(shared_data, level)
    assert all(r.episode.final_answer is not None for r in rollouts), "cut, or failed"
    row, observation, episode = count_tokens([rollout.trajectory for rollout in rollouts])
    # Wordings may change a little without another table.
    assert numbers(cells(f"`{level}`")) == pytest.approx(numbers(row), rel=0.1)
    limits = config_of(FILES[1]).rollout
    assert observation < limits.max_observation_tokens, "an observation was cut"
    assert episode < limits.max_total_tokens / 1.5, "too little room for a talkative model"


# --- the recipe and the commands -----------------------------------------------------------
@pytest.mark.parametrize(("column", "name"), list(enumerate(FILES)))
def test_numbers_of_the_recipe_are_those_of_the_files(column: int, name: str) -> None:
    config, other = config_of(name), config_of(FILES[0])
    rollout, optim = config.rollout, config.optim

    def said(first: str) -> str:
        found = cells(first)
        return found[0] if found[column] == "the same" else found[column]

    episodes = rollout.prompts_per_step * rollout.group_size
    assert said("prompts × group").startswith(
        f"{rollout.prompts_per_step} × {rollout.group_size} = {episodes}"
    )
    assert said("learning rate").startswith(
        f"{optim.lr:.0e}".replace("e-0", "e-") + f", {optim.warmup_steps} steps"
    )
    assert said("decoded together") == f"{rollout.batch_size}"
    assert said("tokens of a micro-batch").startswith(f"{optim.micro_batch_tokens:,}")
    assert said("tokens: turn, observation, episode") == (
        f"{rollout.max_turn_tokens}, {rollout.max_observation_tokens}, {rollout.max_total_tokens:,}"
    )
    assert said("steps") == f"{config.max_steps}"
    assert f"{episodes * config.max_steps:,}" in cells("steps")[2]
    beta = config.algorithm.beta
    assert said("KL") == (f"`beta` {beta}" if beta else "none")
    assert config.tasks == other.tasks and config.model.lora_r == other.model.lora_r == 16


def unloadable() -> list[str]:
    """The commands of the page that need the weights."""
    blocks = [block for block in read_blocks(PAGE) if block.not_run]
    return [command for block in blocks for command in block.commands]


SMALL = {
    "max_steps": 1,
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_turn_tokens": 100},
    "eval": {"num_tasks": 1, "num_tasks_during": 1},
    # Short ones: the context of the tiny model holds no episode of the expert at this level.
    "sft": {"stages": [{"steps": 1, "batch_size": 2, "mix": {"passive": 1.0}}]},
}


@pytest.mark.timeout(600)
def test_commands_that_need_the_weights_run_with_the_tiny_model(
    own_folder: Path, monkeypatch: MonkeyPatch
) -> None:
    """In the order of the page, on a few tasks: the flags, the files and the names are right."""
    from searchrl.programs.setup import planning

    (own_folder / "examples").symlink_to(REPO / "examples")
    monkeypatch.setattr(
        planning,
        "build_config",
        lambda *layers: build_config(*layers, SMALL, {"model": {"name": "tiny"}}),
    )
    for command in unloadable():
        program, *words = shlex.split(command)
        assert program == "searchrl"
        if words[0] == "eval" and words[1].startswith("runs/"):
            words += ["--num-tasks", "1"]
        succeed(*words)


def test_flags_that_the_page_names_are_understood(own_folder: Path) -> None:
    spans = re.findall(r"`(--[a-z-]+ [^`]+)`", TEXT)
    assert len(spans) > 5
    for span in spans:
        words = shlex.split(span)
        succeed("train", "--config", REPO / "examples" / FILES[1], *words, "--dry-run")
