"""What fuzzing found: each fault once had a traceback, a crash, a hang or a message of no use."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import complaint

from searchrl.config import build_config
from searchrl.errors import ConfigError


def refuse(*layers: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        build_config(*layers)
    return str(caught.value)


def play(text: str | bytes, folder: Path) -> str:
    """The error of `play --config run.yaml`."""
    file = folder / "run.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return complaint("play", "--config", "run.yaml")


# --- config files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("seed: 1\noptim:\n  lrr: 3\n", "run.yaml:3: unknown key 'optim.lrr'. Did you mean 'lr'?"),
        ("seed: 1\n\nmax_steps: many\n", "run.yaml:3: max_steps = 'many'"),
        ("env: corpus\nreward: [1]\n", "run.yaml:2: reward = [1]: expected stages"),
        ("tasks:\n  - weight: 1\n  - wieght: 2\n", "run.yaml:3: unknown key 'tasks.1.wieght'"),
        ("seed: 1\noptim: fast\n", "run.yaml:2: optim = 'fast': expected a mapping of keys"),
        ("tasks: {3: {weight: 2}}\n", "run.yaml: 'tasks' has 1 entries, so no tasks.3"),
    ],
)
def test_a_fault_in_a_config_file_has_its_file_and_line(
    own_folder: Path, text: str, place: str
) -> None:
    assert place in play(text, own_folder)


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_threads", 100_000),
        ("num_threads", -1),
        ("rollout.group_size", 1_000_000),
        ("rollout.batch_size", 10**9),
        ("optim.lr", 2.0),
        ("optim.lr", float("nan")),
        ("optim.lr", float("inf")),
        ("optim.max_grad_norm", float("inf")),
        ("rollout.temperature", float("nan")),
        ("rollout.temperature", 1e6),
        ("rollout.env_timeout_s", 1e12),
        ("algorithm.beta", float("inf")),
        ("algorithm.clip_high", float("nan")),
        ("tasks.0.weight", float("inf")),
        ("optim.warmup_steps", -1),
    ],
)
def test_a_number_that_no_run_can_use_is_refused(key: str, value: object) -> None:
    layer: object = value
    for part in reversed(key.split(".")):
        layer = {part: layer}
    assert isinstance(layer, dict)
    assert f"{key} = " in refuse(layer)


# --- names of more than 255 characters -----------------------------------------------------------


# --- expressions ---------------------------------------------------------------------------------


# --- rows ----------------------------------------------------------------------------------------


def questions(data: bytes, folder: Path, name: str = "q.jsonl") -> str:
    """The error about a file of questions."""
    (folder / name).write_bytes(data)
    (folder / "c.jsonl").write_text('{"id": "x", "text": "It is here."}\n')
    files = (f"--set=env.questions={name}", "--set=env.corpus=c.jsonl")
    return complaint("play", "--env", "corpus", *files)


# --- instructions and plugins --------------------------------------------------------------------


def plugin(code: str, folder: Path) -> str:
    """The error about a plugin file."""
    (folder / "mine.py").write_text(f"from searchrl import hookimpl\n{code}")
    return complaint("play", "--plugin", "mine.py")


# --- command lines -------------------------------------------------------------------------------
