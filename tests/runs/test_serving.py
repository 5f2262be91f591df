"""The program of after-training.md that asks a served agent, against a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import succeed
from docs_runner import read_blocks
from fixtures.openai_server import OpenAIServer
from transformers import AutoModelForCausalLM, AutoTokenizer

from searchrl import load_agent

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "after-training.md"
QUESTIONS = ("How many days can I keep a library book?", "When does the library close?")


@pytest.fixture
def exported(own_folder: Path, micro_flags: list[str]) -> Path:
    """The embedded model, exported from a run that changed next to nothing."""
    flags = [*micro_flags, "--model", "tiny", "--lr", "1e-9", "--run-dir", "run"]
    succeed("train", *flags, "--set", "rollout.max_turn_tokens=160")
    succeed("export", "run", "exported")
    return own_folder / "exported"


@pytest.fixture
def server(exported: Path) -> Iterator[str]:
    """`/v1/completions` of an export, greedy, with stop strings kept in the output."""
    model = AutoModelForCausalLM.from_pretrained(exported).eval()
    tokenizer = AutoTokenizer.from_pretrained(exported)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["temperature"] == 0 and asked["include_stop_str_in_output"]
        ids = tokenizer(asked["prompt"], return_tensors="pt", add_special_tokens=False)
        with torch.no_grad():
            found = model.generate(
                **ids,
                do_sample=False,
                max_new_tokens=asked["max_tokens"],
                stop_strings=asked["stop"],
                tokenizer=tokenizer,
            )
        text = tokenizer.decode(found[0, ids["input_ids"].shape[1] :])
        for stop in asked["stop"]:
            before, stopped, _ = text.partition(stop)
            text = before + stopped
        return {"text": text}

    with OpenAIServer(answer) as http:
        yield f"{http.url}/completions"


@pytest.mark.thorough
@pytest.mark.usefixtures("threads_restored")
def test_program_of_the_page_gives_the_answers_of_ask(server: str) -> None:
    (block,) = [b for b in read_blocks(PAGE) if b.saved_as == "serve_client.py"]
    names: dict[str, Any] = {"__name__": "client"}
    exec(block.text.replace("http://localhost:8000/v1/completions", server), names)
    agent = load_agent("run")
    for question in QUESTIONS:
        expected = agent.ask(question)
        assert expected.final_answer is not None, "the question shows nothing"
        text = names["ask"](question)
        assert text.count("<search>") == len(expected.queries)
        assert f"<answer>{expected.final_answer}</answer>" in text.replace(" </", "</").replace(
            "<answer> ", "<answer>"
        )
    agent.close()
