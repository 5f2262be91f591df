"""`searchrl serve-generator`: a vLLM server in the foreground, for runs that name its address."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from searchrl import PolicyError


@click.command("serve-generator", context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--python", required=True, help="The Python of an environment with vLLM.")
@click.option("--model", required=True, help="The base model of the run: a folder or a hub id.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Who may ask: this machine.")
@click.option("--port", default=8200, show_default=True, help="The port.")
@click.option("--dtype", default="bfloat16", show_default=True, help="model.dtype of the run.")
@click.option(
    "--max-length", default=4096, show_default=True, help="rollout.max_total_tokens of the run."
)
@click.option(
    "--lora-rank", default=0, show_default=True, help="model.lora_r of the run; 0: full weights."
)
def serve_generator(
    args: tuple[str, ...],
    python: str,
    model: str,
    host: str,
    port: int,
    dtype: str,
    max_length: int,
    lora_rank: int,
) -> None:
    """Start a vLLM server that training runs can sample from.

    The key is in SEARCHRL_VLLM_KEY, here and for the run. One run at a time uses a server; its
    weights are read from the folder of temporary files (TMPDIR), so both must see that. ARGS, after
    `--`, are more words for the command line of vLLM.

    \b
    Examples:
      searchrl serve-generator --python vllm/bin/python --model Qwen/Qwen3-4B --lora-rank 16
    """
    from searchrl import ConfigError
    from searchrl.api_client import read_key
    from searchrl_vllm.server import KEY, Launch, end

    key = read_key(KEY)
    if key is None:
        raise ConfigError(
            f"the environment variable {KEY} is empty; set it to a secret of yours, and to the "
            "same one for the run: whoever knows it can change the weights"
        )
    launch = Launch(python, dtype, max_length, lora_rank, args=args)
    with tempfile.TemporaryDirectory(prefix="searchrl-vllm-") as folder:
        if not lora_rank:
            model = _write_whole(model, dtype, Path(folder) / "model")
        process = launch.start(model, host, port, key)
        try:
            sys.exit(process.wait())
        finally:
            end(process)


def _write_whole(model: str, dtype: str, folder: Path) -> str:
    """A copy of a model whose weights can be exchanged; see `weights.write_model`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from searchrl_vllm.weights import write_model

    pair: Any = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, output_loading_info=True)
    loaded, read = pair
    if missing := sorted({*read["missing_keys"], *read["unexpected_keys"]}):
        raise PolicyError(f"the weights of '{model}' are not those of its model: {missing[:5]}")
    write_model(loaded, AutoTokenizer.from_pretrained(model), folder)
    return str(folder)
