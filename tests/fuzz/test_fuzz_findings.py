"""What fuzzing found: each fault once had a traceback, a crash, a hang or a message of no use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import call, complaint, succeed
from fuzz_judge import find_fault

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nseed: " + "9" * 5000, "line 2, column 7: 99999"),
        ("seed: !!python/object:os.system x", "the tag '!!python/object:os.system' means nothing"),
        ("seed: !!int x", "line 1, column 7: x cannot be read as 'int'"),
        ("a: \x00", "line 1: the character U+0000 may not stand in YAML"),
        ('run_dir: "a\\0b"', "holds a NUL"),
        ("a: &a [*a]", "aliases (*name) are not read"),
        ("a: " + "[" * 60 + "]" * 60, "nested more than 40 levels deep"),
        ("[" * 100_000, "nested more than 40 levels deep"),
        ("x" * 1_000_001, "more than 1,000,000 characters"),
        ("\tseed: 1", "line 1, column 1: "),
        ("null", "must be a mapping of keys such as `seed: 1`, and holds null"),
    ],
)
def test_yaml_that_cannot_be_used_is_explained_without_pyyaml_s_words(
    own_folder: Path, text: str, message: str
) -> None:
    found = play(text, own_folder)
    assert message in found and "'run.yaml'" in found
    assert "unicode string" not in found and "set_int_max_str_digits" not in found


def test_a_device_without_an_end_is_no_config_file() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("this system has no /dev/zero")
    assert "more than 1,000,000 characters" in complaint("play", "--config", "/dev/zero")


def test_a_digit_of_another_script_is_no_index() -> None:
    assert "tasks" in refuse({"tasks": {"²": {"weight": 2}}})
    assert "tasks" in refuse({"tasks": {"9" * 5000: {"weight": 2}}})


def test_the_path_of_a_set_may_not_be_endless() -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        parse_set(".".join(["a"] * 5000) + "=1")


def test_only_digits_with_an_exponent_are_turned_into_numbers() -> None:
    assert parse_set("a=1e-4") == {"a": 1e-4}
    for word in ("nan", "infinity", "inf", "٣", "1_0e3"):
        assert parse_set(f"env.name={word}") == {"env": {"name": word}}


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


def test_true_is_still_a_choice_where_it_is_one() -> None:
    assert build_config(parse_set("engine.deterministic=true")).engine.deterministic is True


# --- names of more than 255 characters -----------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["eval", "--model", LONG],
        ["eval", "--model", f"x/{LONG}"],
        ["eval", LONG],
        ["ask", LONG, "Who?"],
        ["train", "--dry-run", "--init-from", LONG],
        ["train", "--resume", LONG],
        ["play", "--config", LONG],
        ["play", "--plugin", f"{LONG}.py"],
        ["play", "--plugin", LONG],
        ["play", "--env", "corpus", f"--set=env.questions={LONG}", f"--set=env.corpus={LONG}"],
        ["play", "--env", "corpus", "--set=env.questions=a", f"--set=env.corpus={LONG}.md"],
        ["play", f"--set=env.handbook={LONG}.md"],
        ["play", f"--set=protocol.instruction=@{LONG}"],
        ["runs", LONG],
        ["export", LONG, "out"],
        ["push", LONG, "me/it"],
        ["check", LONG],
        ["check", f"{LONG}.py"],
    ],
)
def test_a_name_longer_than_a_file_s_may_be_is_no_traceback(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert LONG[:50] in complaint(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["play", "--plugin", "~nobody-here/x.py"],
        ["play", "--env", "corpus", "--set=env.questions=~nobody-here/q", "--set=env.corpus=c"],
    ],
)
def test_the_home_of_an_unknown_user_is_no_traceback(own_folder: Path, words: list[str]) -> None:
    assert "~nobody-here" in complaint(*words)


# --- expressions ---------------------------------------------------------------------------------


def test_a_name_of_thousands_of_letters_is_cut() -> None:
    assert len(complaint("play", "--reward=" + "em" * 4000)) < 1000
    assert len(complaint("play", "--reward=em+" + "9" * 5000)) < 1000


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


def test_a_dry_run_of_sft_reads_the_traces(own_folder: Path) -> None:
    (own_folder / "t.jsonl").write_text('{"prompt": "a", "turns": [{}]}\n')
    text = complaint("sft", "--dry-run", "--model", "tiny", "--traces", "t.jsonl")
    assert "t.jsonl:1: turn 0: expected an object with the text" in text
    assert LONG in complaint("sft", "--dry-run", "--model", "tiny", "--traces", LONG)
    (own_folder / "t.jsonl").write_text('{"messages": null}\n')
    text = complaint("sft", "--dry-run", "--model", "tiny", "--traces", "t.jsonl")
    assert 'expected "messages" to be a list, got null' in text


# --- instructions and plugins --------------------------------------------------------------------


def test_an_instruction_that_is_not_utf8_has_its_line(own_folder: Path) -> None:
    (own_folder / "own.txt").write_bytes(b"Think.\n\xff\xfe\n")
    text = complaint("play", "--set=protocol.instruction=@own.txt")
    assert "cannot read 'own.txt': " in text and "expected a UTF-8 text file" in text


def test_a_mistyped_instruction_gets_the_near_file(own_folder: Path) -> None:
    (own_folder / "own.txt").write_text("Think.")
    assert "Did you mean 'own.txt'?" in complaint("play", "--set=protocol.instruction=@onw.txt")


def plugin(code: str, folder: Path) -> str:
    """The error about a plugin file."""
    (folder / "mine.py").write_text(f"from searchrl import hookimpl\n{code}")
    return complaint("play", "--plugin", "mine.py")


@pytest.mark.parametrize("name", [".nan", "a b", "...", "x;y"])
def test_what_is_neither_a_file_nor_a_module_is_no_plugin(own_folder: Path, name: str) -> None:
    text = complaint("play", "--plugin", name)
    assert f"--plugin '{name}': there is no file" in text and "or a module's name" in text


def test_an_exception_whose_text_fails_is_still_named(own_folder: Path) -> None:
    text = plugin("class Odd(Exception):\n def __str__(self): 1/0\nraise Odd\n", own_folder)
    assert "raised at import: Odd: (its __str__ fails)" in text


def test_a_name_that_is_no_text_is_not_shown_as_python_writes_it(own_folder: Path) -> None:
    code = "@hookimpl\ndef register_rewards(register): register(object(), dict)\n"
    text = plugin(code, own_folder)
    assert "registers a reward without a name" in text and "0x" not in text


@pytest.mark.parametrize("message", ["'a\\n' * 99", "'x' * 100_000"])
def test_a_plugin_that_says_too_much_is_cut_and_the_way_on_stays(
    own_folder: Path, message: str
) -> None:
    text = plugin(f"raise ValueError({message})\n", own_folder)
    assert "mine.py:2) raised at import: ValueError" in text
    assert "then try: searchrl check" in text
    assert len(text.splitlines()) <= 20 and len(text) < 4000


# --- command lines -------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--seed", "9" * 20_000], ["--" + "x" * 20_000], ["x\n" * 99]])
def test_click_s_own_errors_are_cut_too(words: list[str]) -> None:
    result = call("play", *words)
    assert result.exit_code == 2 and not find_fault(result)


def test_a_game_that_is_left_is_no_success_for_a_program() -> None:
    result = call("play", "--index", "0", "--json", typed="quit\n")
    assert result.exit_code == 3
    left = json.loads(result.stdout)
    assert left["reward"] is None and left["unscored"] == "the episode was left before its end"


def test_a_person_may_leave_a_game() -> None:
    assert "not finished" in succeed("play", "--index", "0", typed="quit\n").stdout
