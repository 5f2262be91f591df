"""Export: stock transformers and PEFT answer as `searchrl eval` does; no path is in any file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import complaint, succeed
from peft import LoraConfig, LoraModel, PeftModel, get_peft_model
from reseal import reseal
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from searchrl.run_folder import Run

NUM_TASKS = 2


@pytest.fixture(scope="session")
def shrunk_qwen3(tmp_path_factory: pytest.TempPathFactory, micro_model: Path) -> Path:
    """A Qwen3 of one layer that has nothing to do with the embedded model."""
    folder = tmp_path_factory.mktemp("models") / "Qwen3-shrunk"
    shutil.copytree(micro_model, folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    del config["searchrl_tiny"]
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


@pytest.fixture(scope="session")
def lora_run(
    tmp_path_factory: pytest.TempPathFactory, micro_flags: list[str], shrunk_qwen3: Path
) -> Path:
    """A run whose adapter, on a shrunk Qwen3, changes what the model says."""
    folder = tmp_path_factory.mktemp("runs") / "lora"
    flags = ["--set", "model.adapter=lora", "--set", "model.dtype=float32"]
    flags += ["--model", str(shrunk_qwen3)]
    succeed("train", *micro_flags, *flags, "--run-dir", folder)
    for policy in (folder / "policy", *folder.glob("checkpoints/step_*/policy")):
        path = policy / "adapter_model.safetensors"
        # One step from nothing changes no answer: B is made as large as A.
        weights = load_file(path)
        torch.manual_seed(1)
        for name, weight in weights.items():
            if "lora_B" in name:
                weights[name] = torch.randn_like(weight)
        save_file(weights, path, {"format": "pt"})
    reseal(folder)
    return folder


def greedy_turns(run: Path, folder: Path) -> list[tuple[list[int], list[int]]]:
    """What `searchrl eval` had written, turn by turn: everything before it, and the turn."""
    flags = ["--num-tasks", NUM_TASKS, "--no-forced", "--set", "eval.temperature=0"]
    succeed("eval", run, *flags, "--run-dir", folder)
    turns = []
    for row in Run.open(folder).rollouts("eval"):
        for number in range(max(row["turn"]) + 1):
            mine = [
                place
                for place, (turn, author) in enumerate(
                    zip(row["turn"], row["authors"], strict=True)
                )
                if turn == number and author == "M"
            ]
            turns.append((row["ids"][: mine[0]], row["ids"][mine[0] : mine[-1] + 1]))
    assert turns
    return turns


def ensure_same_answers(model: Any, turns: list[tuple[list[int], list[int]]]) -> None:
    for before, turn in turns:
        ids = torch.tensor([before])
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=len(turn),
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
        )
        assert found[0, len(before) :].tolist() == turn


def ensure_nothing_of_this_machine(folder: Path, *forbidden: Path | str) -> None:
    words = [str(word).encode() for word in (*forbidden, Path.home(), Path.cwd())]
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            named = [word for word in words if len(word) > 1 and word in content]
            assert not named, (file, named)


def plain(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def with_adapter(base: Path, folder: Path) -> Any:
    return PeftModel.from_pretrained(plain(base), folder).eval()


def test_adapter_and_merged_weights_give_the_answers_of_eval(
    lora_run: Path, shrunk_qwen3: Path, tmp_path: Path
) -> None:
    turns = greedy_turns(lora_run, tmp_path / "eval")
    succeed("export", lora_run, tmp_path / "adapter")
    succeed("export", lora_run, tmp_path / "whole", "--merge")
    ensure_same_answers(with_adapter(shrunk_qwen3, tmp_path / "adapter"), turns)
    ensure_same_answers(plain(tmp_path / "whole"), turns)
    with pytest.raises(AssertionError):  # the adapter matters
        ensure_same_answers(plain(shrunk_qwen3), turns)
    for name in ("adapter", "whole"):
        ensure_nothing_of_this_machine(tmp_path / name, lora_run, shrunk_qwen3, tmp_path)
        assert AutoTokenizer.from_pretrained(tmp_path / name).encode("library hours")
    assert not list((tmp_path / "whole").glob("adapter*"))


@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["lm_head"]},
        {"target_modules": ["embed_tokens"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
        {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
        {"target_modules": ["q_proj"]},
    ],
)
def test_merging_one_of_two_tied_matrices_leaves_the_other_alone(
    lora_run: Path, shrunk_qwen3: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Merged logits were 4 off: what was added to the head was added to the embeddings, too."""
    run = shutil.copytree(lora_run, tmp_path / "run")
    for policy in (run / "policy", *run.glob("checkpoints/step_*/policy")):
        torch.manual_seed(2)
        model = get_peft_model(plain(shrunk_qwen3), LoraConfig(task_type="CAUSAL_LM", **settings))
        for weight in (one for one in model.parameters() if one.requires_grad):
            weight.data += 0.1 * torch.randn_like(weight)
        model.save_pretrained(policy)
    reseal(run)
    succeed("export", run, tmp_path / "whole", "--merge")
    ids = torch.arange(0, 250, 10)[None]
    base = plain(shrunk_qwen3)(ids).logits
    wanted = with_adapter(shrunk_qwen3, run / "policy")(ids).logits
    written = plain(tmp_path / "whole")
    assert (wanted - base).abs().max() > 0.1
    torch.testing.assert_close(written(ids).logits, wanted, atol=1e-4, rtol=1e-4)
    changes_one = settings != {"target_modules": ["q_proj"]}
    assert written.config.tie_word_embeddings == (not changes_one)
    assert ("lm_head.weight" in load_file(tmp_path / "whole/model.safetensors")) == changes_one


def test_a_merge_that_makes_another_model_is_refused(
    lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peft.tuners.lora.model.LoraModel.merge_and_unload", LoraModel.unload)
    text = complaint("export", lora_run, tmp_path / "whole", "--merge")
    assert "makes another model" in text and "--base" in text and str(lora_run) in text
    assert not (tmp_path / "whole").exists()


def test_whole_weights_give_the_answers_of_eval_with_and_without_merge(
    micro_run: Path, tmp_path: Path
) -> None:
    turns = greedy_turns(micro_run, tmp_path / "eval")
    for name, flags in (("as_is", []), ("merged", ["--merge"])):
        found = succeed("export", micro_run, tmp_path / name, *flags)
        assert ("there is no adapter to merge" in found.stdout) == bool(flags)
        ensure_same_answers(plain(tmp_path / name), turns)
        ensure_nothing_of_this_machine(tmp_path / name, micro_run, tmp_path)


def test_base_is_named_as_others_know_it(lora_run: Path, micro_model: Path, tmp_path: Path) -> None:
    def base_of(folder: Path) -> str:
        text = (folder / "adapter_config.json").read_text()
        return str(json.loads(text)["base_model_name_or_path"])

    found = succeed("export", lora_run, tmp_path / "a")
    assert base_of(tmp_path / "a") == "Qwen3-shrunk"
    assert "name it as others know it with --base" in found.stdout
    named = succeed("export", lora_run, tmp_path / "b", "--base", "Qwen/Qwen3-4B")
    assert base_of(tmp_path / "b") == "Qwen/Qwen3-4B" and "note:" not in named.stdout
    assert "base_model: Qwen/Qwen3-4B" in (tmp_path / "b" / "README.md").read_text()
    assert "expected a hub id" in complaint(
        "export", lora_run, tmp_path / "c", "--base", str(micro_model)
    )


def test_checkpoint_is_exported_with_its_own_weights_and_figures(
    micro_run: Path, tmp_path: Path
) -> None:
    first = micro_run / "checkpoints" / "step_000000"
    succeed("export", first, tmp_path / "first")
    weights = load_file(tmp_path / "first" / "model.safetensors")
    own = load_file(first / "policy" / "model.safetensors")
    assert all(torch.equal(weights[name], own[name]) for name in own)
    card = (tmp_path / "first" / "README.md").read_text()
    assert "weights of step 0" in card and "after training" not in card


def test_card_holds_the_figures_and_the_facts_of_the_run(micro_run: Path, tmp_path: Path) -> None:
    succeed("export", micro_run, tmp_path / "agent")
    card = (tmp_path / "agent" / "README.md").read_text()
    summary = Run.open(micro_run).summary
    for time in ("before", "after"):
        assert f"{summary[time]['em']['value']:.3f}" in card
    for fact in ("| metric | before training | after training |", "| seed | 0 |", "| duration |"):
        assert fact in card
    assert "`</search>`" in card and "name: agent" in card


def test_folder_that_is_not_empty_is_left_as_it_is(micro_run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert "is not an empty folder" in complaint("export", micro_run, tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]


def test_export_that_fails_leaves_nothing(
    micro_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    text = complaint("export", micro_run, tmp_path / "out")
    assert "No space left on device" in text and "choose another folder" in text
    assert not list(tmp_path.iterdir())
