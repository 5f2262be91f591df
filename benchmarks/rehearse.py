"""What `searchrl train --rehearse` finds: a good configuration, and faults put into it one by one.

    python benchmarks/rehearse.py [--tokenizer DIR]

The model is the config of Qwen3-4B without weights, with the tokenizer of DIR (by default that of
the embedded model). Each row is a command of its own; `found` has what failed or was warned of.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config

from searchrl.engine.model.loading import TINY_PATH

KEEPS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('system') }}{% endif %}" + KEEPS
)
STRIPS = KEEPS.replace(
    "m.content", "m.content.split('</think>')[-1] if m.role == 'assistant' else m.content"
)

PLUGIN = """
from searchrl import hookimpl
from searchrl.envs.regulations import RegulationsEnv, make_expert
class Changed(RegulationsEnv):
    def {0}, **settings): return super().{1}
class Level:
    values, is_range = (0.0, 1.0), False
    def __call__(self, episode): return float(episode.task.meta["level"] == "hard")
@hookimpl
def register_rewards(register): register("level", Level)
@hookimpl
def register_envs(register): register("changed", Changed, expert=make_expert)
"""
FINE = PLUGIN.format("step(self, action", "step(action)")
STEP = PLUGIN.format("step(self, action, place, time", "step(action)")
MADE = PLUGIN.format("__init__(self, place, time", "__init__(**settings)")

CASES: dict[str, tuple[str, str, list[str]]] = {
    "none": (KEEPS, FINE, []),
    "LoRA targets that do not exist": (KEEPS, FINE, ["model.lora_targets=[q_proj,w_gate]"]),
    "a template without a system role": (NO_SYSTEM, FINE, []),
    "a template that strips thoughts": (STRIPS, FINE, []),
    "stop strings of many tokens": (KEEPS, FINE, ["bytes"]),
    "stop strings longer than a turn": (KEEPS, FINE, ["bytes", "rollout.max_turn_tokens=8"]),
    "a reward that needs a missing key": (KEEPS, FINE, ["reward=em+level"]),
    "a step() with two arguments too many": (KEEPS, STEP, []),
    "an env made with two arguments too many": (KEEPS, MADE, []),
}
"""Template, plugin and settings; with `bytes`, stop strings have a token for each letter."""


def write_model(folder: Path, tokenizer: Any, template: str) -> Path:
    """A folder with the config of Qwen3-4B and a tokenizer, and no weights."""
    tokenizer.chat_template = template
    Qwen3Config(
        hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, head_dim=128,
        num_attention_heads=32, num_key_value_heads=8, vocab_size=151_936,
        max_position_embeddings=40960, eos_token_id=tokenizer.eos_token_id,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE({letter: n for n, letter in enumerate(letters)}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<|endoftext|>")


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, default=TINY_PATH)
    real = parser.parse_args().tokenizer
    print("fault | seconds | of the CPU | exit | found\n---|---|---|---|---")
    with tempfile.TemporaryDirectory() as name:
        plugin = Path(name) / "changed.py"
        for number, (fault, (template, text, settings)) in enumerate(CASES.items()):
            is_bytes = "bytes" in settings
            tokenizer = byte_tokenizer() if is_bytes else AutoTokenizer.from_pretrained(real)
            model = write_model(Path(name) / f"model{number}", tokenizer, template)
            plugin.write_text(text, "utf-8")
            words = ["train", "--rehearse", "--json", "--model", str(model), "--device", "cpu"]
            words += ["--plugin", str(plugin), "--env", "changed"]
            words += [word for one in settings if "=" in one for word in ("--set", one)]
            began, cpu_s = time.perf_counter(), getrusage(RUSAGE_CHILDREN).ru_utime
            done = subprocess.run([sys.executable, "-m", "searchrl", *words], capture_output=True)
            checks = json.loads(done.stdout)["checks"] if done.stdout else []
            found = "; ".join(
                f"{one['name']}: {one['says']}"
                for one in checks
                if one["state"] in ("warned", "failed") or (is_bytes and one["name"] == "stops")
            )
            found = found or ("nothing" if checks else done.stderr.decode()[-300:])
            cpu_s = getrusage(RUSAGE_CHILDREN).ru_utime - cpu_s
            took = f"{time.perf_counter() - began:.0f} | {cpu_s:.0f}"
            print(fault, took, done.returncode, found, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
