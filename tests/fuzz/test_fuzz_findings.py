"""What fuzzing found: each fault once had a traceback, a crash, a hang or a message of no use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call, complaint, succeed

from searchrl.config import build_config, load_yaml, parse_set
from searchrl.errors import ConfigError

LONG = "n" * 300


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


def test_a_fault_on_the_command_line_does_not_blame_the_file(own_folder: Path) -> None:
    (own_folder / "run.yaml").write_text("max_steps: 3\n")
    text = complaint("play", "--config", "run.yaml", "--set", "max_steps=many")
    assert "  max_steps = 'many'" in text and "run.yaml" not in text


def test_the_file_of_a_layer_is_kept_apart_from_its_keys(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("seed: 1\n")
    layer = load_yaml(tmp_path / "run.yaml")
    assert layer == {"seed": 1} and layer.place_of(("seed",)).endswith("run.yaml:1")


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


@pytest.mark.parametrize(
    "key",
    [
        "max_steps",
        "optim.lr",
        "algorithm.beta",
        "tasks.0.weight",
        "sft.stages.0.mix.expert",
        "seed",
    ],
)
def test_true_is_no_number(key: str) -> None:
    """Python takes true for 1: a run of one step, silently."""
    assert f"{key} = true: expected a number" in refuse(parse_set(f"{key}=true"))


# --- names of more than 255 characters -----------------------------------------------------------


# --- expressions ---------------------------------------------------------------------------------


# --- rows ----------------------------------------------------------------------------------------


def questions(data: bytes, folder: Path, name: str = "q.jsonl") -> str:
    """The error about a file of questions."""
    (folder / name).write_bytes(data)
    (folder / "c.jsonl").write_text('{"id": "x", "text": "It is here."}\n')
    files = (f"--set=env.questions={name}", "--set=env.corpus=c.jsonl")
    return complaint("play", "--env", "corpus", *files)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"id": ' + b"9" * 5000 + b"}\n", "q.jsonl:1: not JSON: nested too deeply, or a number"),
        (b'[{"id": ' + b"9" * 5000 + b"}]\n", "q.jsonl: not JSON (parse error: integer overflow)"),
        (b'{"question": "a", "answer": NaN}\n', "q.jsonl:1: has no answer"),
        (b'{"question": "a", "answer": [Infinity]}\n', "q.jsonl:1: 'answer' must be text"),
        ('{"question": "a"}\n'.encode("utf-16"), "is UTF-16 or UTF-32 text; save it as UTF-8"),
        (b"question\tanswer\na\tb\n", "q.jsonl: looks like a table; name it FILE.csv, or FILE.tsv"),
        (b'{"id": "' + b"n" * 100_000 + b'", "question": 3}\n', "'question' must be text, got 3"),
        (b'{"question": "a", "answer": "b", "slices": ["' + b"?" * 99_999 + b'"]}', "the slice"),
    ],
)
def test_rows_that_cannot_be_used_are_explained(
    own_folder: Path, data: bytes, message: str
) -> None:
    text = questions(data, own_folder)
    assert message in text and len(text) < 1500


def test_a_value_that_is_missing_in_pandas_is_missing(own_folder: Path) -> None:
    (own_folder / "q.jsonl").write_text('{"question": "a", "answer": "b", "id": NaN}\n')
    (own_folder / "c.jsonl").write_text('{"id": "x", "title": NaN, "text": "It is here."}\n')
    flags = ("--set=env.questions=q.jsonl", "--set=env.corpus=c.jsonl", "--set=env.test_frac=1")
    succeed("play", "--env", "corpus", *flags)


# --- instructions and plugins --------------------------------------------------------------------


def plugin(code: str, folder: Path) -> str:
    """The error about a plugin file."""
    (folder / "mine.py").write_text(f"from searchrl import hookimpl\n{code}")
    return complaint("play", "--plugin", "mine.py")


# --- command lines -------------------------------------------------------------------------------


def test_a_game_that_is_left_is_no_success_for_a_program() -> None:
    result = call("play", "--index", "0", "--json", typed="quit\n")
    assert result.exit_code == 3
    left = json.loads(result.stdout)
    assert left["reward"] is None and left["unscored"] == "the episode was left before its end"


def test_a_person_may_leave_a_game() -> None:
    assert "not finished" in succeed("play", "--index", "0", typed="quit\n").stdout
