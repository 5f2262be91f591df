"""The configuration tree: what it accepts, what it refuses and with which words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from searchrl.config import RunConfig, build_config, load_yaml, parse_set
from searchrl.errors import ConfigError


def refuse(*layers: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        build_config(*layers)
    return str(caught.value)


def config(*assignments: str, under: dict[str, Any] | None = None) -> RunConfig:
    """The config of some `--set` assignments on top of a layer."""
    return build_config(under or {}, *map(parse_set, assignments))


# --- names and short forms -----------------------------------------------------------------
def test_short_forms_write_the_first_task() -> None:
    short = build_config(
        {"env": "corpus", "reward": "em", "protocol": {"name": "mine", "tag": "t"}},
        {"retriever": "empty"},
    )
    task = short.tasks[0]
    assert (task.env.name, task.reward, task.retriever.name) == ("corpus", "em", "empty")
    assert (task.protocol.name, task.protocol.settings) == ("mine", {"tag": "t"})
    assert len(short.tasks) == 1


def test_short_form_beside_tasks_changes_the_first_entry_only() -> None:
    both = build_config({"tasks": [{"env": "corpus"}, {"env": "regulations"}], "reward": "f1"})
    assert [task.reward for task in both.tasks] == ["f1", "auto"]
    assert [task.env.name for task in both.tasks] == ["corpus", "regulations"]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ({"rollout": {"groupsize": 3}}, "unknown key 'rollout.groupsize'. Did you mean 'group_siz"),
        ({"enw": "corpus"}, "unknown key 'enw'. Did you mean 'env'?"),
        ({"lr": 1e-4}, "unknown key 'lr'. Did you mean 'optim.lr'?"),
        ({"tasks": {"0": {"rewards": "em"}}}, "'tasks.0.rewards'. Did you mean 'reward'?"),
        ({"sft": {"stages": {"0": {"step": 1}}}}, "'sft.stages.0.step'. Did you mean 'steps'"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_near_one(wrong: dict[str, Any], hint: str) -> None:
    assert hint in refuse(wrong)


def test_all_faults_are_reported_at_once() -> None:
    message = refuse({"optim": {"lr": "fast"}, "max_steps": -1, "nonsense": 1})
    for part in ("optim.lr = 'fast'", "max_steps = -1", "unknown key 'nonsense'"):
        assert part in message


WRONG_VALUES = """
optim.lr=nan ; optim.lr=-1 ; rollout.group_size=0 ; algorithm.clip_low=1
model.lora_dropout=1.5 ; device=gpu ; algorithm.reduction=mean ; rollout.temperature=0
tasks=[] ; env=3 ; log.trackers=3 ; model.scratch.head_dim=3 ; model.scratch.num_kv_heads=3
seed=-1 ; seed=99999999999999999999 ; model.name="" ; init_from="" ; sft.stages=[]
sft.stages.0.mix={} ; sft.stages.0.mix={expert: 0} ; sft.stages.0.mix={expert: -1, passive: 2}
model.lora_targets=[] ; model.lora_targets=[""] ; model.lora_targets=["q_(proj|x)"]
sft.stages.0.mix={expert: .inf} ; sft.stages.0.mix=expert ; policy=mlp
num_threads=100000 ; num_threads=-1 ; rollout.group_size=1000000 ; rollout.batch_size=1000000000
optim.lr=2.0 ; optim.lr=.inf ; optim.max_grad_norm=.inf ; optim.warmup_steps=-1
rollout.temperature=.nan ; rollout.temperature=1e6 ; rollout.env_timeout_s=1e12
algorithm.beta=.inf ; algorithm.clip_high=.nan ; tasks.0.weight=.inf
"""


@pytest.mark.parametrize("assignment", re.split(r" ; |\n", WRONG_VALUES.strip()))
def test_a_value_out_of_range_is_refused_naming_its_key(assignment: str) -> None:
    assert assignment.partition("=")[0] in refuse(parse_set(assignment))


# --- --set ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("format+em", "format+em"),
        ("[em, f1]", ["em", "f1"]),
        ("{lookup: 1}", {"lookup": 1}),
        ("a=b", "a=b"),
        ('""', ""),
        ("2024-01-02", "2024-01-02"),
        ("@prompts/mine.txt", "@prompts/mine.txt"),
    ],
)
def test_set_reads_its_value_as_a_person_means_it(text: str, value: Any) -> None:
    assert parse_set(f"key={text}") == {"key": value}
    assert type(parse_set(f"key={text}")["key"]) is type(value)


def test_a_section_that_is_there_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    """The first would be gone, and no unknown key to show for it."""
    path = tmp_path / "run.yaml"
    path.write_text("rollout: {group_size: 4}\nseed: 1\nrollout: {env_timeout_s: 5}\n")
    with pytest.raises(ConfigError, match="line 3, column 1: the key 'rollout' is there twice"):
        load_yaml(path)


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
    tmp_path: Path, text: str, place: str
) -> None:
    (tmp_path / "run.yaml").write_text(text)
    assert place in refuse(load_yaml(tmp_path / "run.yaml"))


@pytest.mark.parametrize("wrong", ["optim.lr", "=3", "a..b=1", "", ".a=1"])
def test_set_without_key_or_value_says_what_is_expected(wrong: str) -> None:
    with pytest.raises(ConfigError, match="expected KEY=VALUE such as --set optim.lr=1e-4"):
        parse_set(wrong)


def test_one_tracker_needs_no_list() -> None:
    assert [tracker.name for tracker in config("log.trackers=jsonl").log.trackers] == ["jsonl"]
    assert config("log.trackers=null").log.trackers == []


def test_set_of_an_element_that_is_not_there_names_how_many_are() -> None:
    with pytest.raises(ConfigError, match=r"'tasks' has 1 entries.*tasks\.1"):
        config("tasks.3.weight=2")


def test_set_adds_the_element_after_the_last_one() -> None:
    first, second = config("tasks.1.env=corpus", "tasks.1.weight=2").tasks
    assert (first.env.name, second.env.name, second.weight) == ("regulations", "corpus", 2)


@pytest.mark.parametrize("key", ["env", "protocol", "retriever"])
def test_another_plugin_does_not_inherit_the_settings_of_the_one_it_replaces(key: str) -> None:
    under = {key: {"name": "mine", "path": "x"}}
    kept = build_config(under, {key: {"k": 3}})
    assert getattr(kept.tasks[0], key).settings == {"path": "x", "k": 3}
    same = build_config(under, {key: "mine"})
    assert getattr(same.tasks[0], key).settings == {"path": "x"}
    other = build_config(under, {key: "other"})
    assert getattr(other.tasks[0], key).settings == {}


def test_a_setting_of_an_algorithm_is_a_key_of_its_section() -> None:
    layers = {"algorithm": {"name": "mine", "beta": 0, "width": 3}}, {"algorithm": {"depth": 2}}
    own = build_config(*layers).algorithm
    assert (own.beta, own.settings) == (0, {"width": 3, "depth": 2})
    assert build_config(*layers, {"algorithm": "other"}).algorithm.settings == {}


def test_another_algorithm_keeps_the_clip_range_and_drops_foreign_settings() -> None:
    mine = {"algorithm": {"name": "mine", "clip_high": 0.28, "settings": {"critic_lr": 1e-5}}}
    assert build_config(mine).algorithm.settings == {"critic_lr": 1e-5}
    other = build_config(mine, {"algorithm": {"name": "grpo"}}).algorithm
    assert (other.clip_high, other.settings) == (0.28, {})


def test_presets_lie_under_the_file_and_the_file_under_the_flags() -> None:
    preset, file = {"optim": {"lr": 0.1, "warmup_steps": 7}}, {"optim": {"lr": 0.2}, "seed": 5}
    merged = build_config(preset, file, parse_set("seed=6"))
    assert (merged.optim.warmup_steps, merged.optim.lr, merged.seed) == (7, 0.2, 6)
    assert merged.optim.max_grad_norm == RunConfig().optim.max_grad_norm


# --- files and fingerprints ----------------------------------------------------------------
def test_yaml_round_trip_gives_an_equal_config() -> None:
    original = build_config(
        {"env": {"name": "corpus", "corpus": "texte/Größe", "topk": 5}},
        {"reward": {0: "em", 3: "f1"}},
        {"optim": {"lr": 1e-7}, "log": {"trackers": ["jsonl"]}, "rollout": {"env_timeout_s": None}},
    )
    again = build_config(yaml.safe_load(original.to_yaml()))
    assert again == original and again.fingerprint == original.fingerprint
    assert "Größe" in original.to_yaml()


def test_the_fingerprint_sees_what_changes_results_and_nothing_else() -> None:
    first = build_config().fingerprint
    assert first == build_config().fingerprint and len(first) == 16
    assert int(first, 16) >= 0
    for same in ("run_dir=elsewhere", "log.compress=false", "checkpoint.every=3", "num_threads=1"):
        assert config(same).fingerprint == first, same
    for other in ("seed=1", "optim.lr=1e-6", "env.topk=4", "reward=em", "max_steps=1"):
        assert config(other).fingerprint != first, other


@pytest.mark.parametrize(
    ("windows", "most"), [([512, 100], 512), ([512, None], 900), ([3], 900), ([2000], 900)]
)
def test_the_widest_window_of_a_task_bounds_what_is_read(windows: list[Any], most: int) -> None:
    tasks = [{"env": "facts", "wrapper": {"name": "w", "window": one}} for one in windows]
    assert (
        build_config({"tasks": tasks, "rollout": {"max_total_tokens": 900}}).context_tokens == most
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read config '.*': No such file"),
        ("a: 1\nname: Größe".encode("latin-1"), r"is not UTF-8 text \(line 2\)"),
        ("a: \N{NULL}", "is not valid YAML"),
        ("a: [1", "is not valid YAML.*line 1"),
        ("a: &a [x, x]\nb: [*a, *a]", "line 2.*aliases"),  # nine such lines are a billion values
        ("a: &a [*a]", "aliases"),
        ("a: !!python/object/apply:os.system ['exit 3']", "line 1.*!!python/object"),
        ("- env", 'must be a mapping of keys such as `seed: 1`, and holds \\["env"\\]'),
        ("", "must be a mapping of keys such as `seed: 1`, and holds null"),
    ],
)
def test_an_unusable_file_is_named_with_its_fault(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=f"(?s){message}") as caught:
        load_yaml(path)
    assert str(path) in str(caught.value)
