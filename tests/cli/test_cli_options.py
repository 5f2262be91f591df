"""Flags: each is a config key that exists, and layers apply in their order."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from command_line import complaint, succeed

from searchrl.cli import main
from searchrl.cli.commands.training import train
from searchrl.cli.options import Option, read_layers
from searchrl.config import RunConfig, build_config
from searchrl.config.tree import TASK_KEYS
from searchrl.errors import ConfigError


def options_of(name: str) -> list[Option]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return [one for one in command.params if isinstance(one, Option)]


KEYS = {
    one.key: one.opts[0]
    for name in main.list_commands(click.Context(main))
    for one in options_of(name)
    if one.key
}


def layers(*args: str) -> tuple[dict[str, Any], ...]:
    found: list[Any] = []

    def read(**values: Any) -> None:
        found.append(read_layers())

    command = click.Command("train", params=train.params, callback=read)
    result = CliRunner().invoke(command, list(args), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return tuple(found[0])


def config(*args: object) -> RunConfig:
    return build_config(*layers(*map(str, args)))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{KEYS[key]}-{key}")
def test_every_option_names_an_existing_key(key: str) -> None:
    config = RunConfig().to_dict()
    tree: Any = config["tasks"][0] if key in TASK_KEYS else config
    for part in key.split("."):
        assert part in tree, key
        tree = tree[part]


def test_flags_reach_their_keys() -> None:
    made = config(
        *"--env corpus --reward em --model tiny --algorithm rloo --seed 7 --lr 0.5".split(),
        *"--beta 0 --group-size 3 --max-steps 9 --policy scripted --device cpu".split(),
    )
    assert (made.tasks[0].env.name, made.tasks[0].reward) == ("corpus", "em")
    assert (made.model.name, made.algorithm.name, made.algorithm.beta) == ("tiny", "rloo", 0)
    assert (made.seed, made.optim.lr, made.rollout.group_size, made.max_steps) == (7, 0.5, 3, 9)
    assert (made.policy, made.device) == ("scripted", "cpu")


def test_the_flag_for_alarms_sets_actions_and_leaves_settings() -> None:
    made = config(
        *"--alarm kl_blow_up=stop --alarm dead_groups=off --alarm mine".split(),
        *"--set alarms.watch.kl_blow_up.max_kl=3 --set alarms.watch.truncation=off".split(),
    ).alarms.watch
    assert (made["kl_blow_up"].action, made["kl_blow_up"].settings) == ("stop", {"max_kl": 3})
    assert (made["dead_groups"].action, made["truncation"].action) == ("off", "off")
    assert (made["mine"].action, made["divergence"].action) == ("auto", "auto")
    with pytest.raises(ConfigError, match="alarms.watch.mismatch.action = 'halt'"):
        config(*"--alarm mismatch=halt".split())


def test_set_wins_over_flag_and_flag_over_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seed: 1\nmax_steps: 1\noptim: {lr: 0.1, warmup_steps: 3}\n")
    made = config(
        "--set", "seed=3", "--seed", "2", "--config", file, "--max-steps", "2",
        "--set", "optim.lr=1e-4",
    )  # fmt: skip
    assert (made.seed, made.max_steps) == (3, 2)
    assert (made.optim.lr, made.optim.warmup_steps) == (1e-4, 3)


def test_set_adds_settings_to_the_env_of_the_flag() -> None:
    made = config("--env", "corpus", "--set", "env.corpus=docs", "--set", "env.questions=q.jsonl")
    assert made.tasks[0].env.settings == {"corpus": "docs", "questions": "q.jsonl"}


def test_plugins_of_file_and_flags_add_up_and_are_absolute(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("plugins: [some.module]\n")
    made = config("--config", file, "--plugin", "here.py", "--plugin", "other.module")
    assert made.plugins == ["some.module", str(Path("here.py").resolve()), "other.module"]


@pytest.mark.parametrize(
    ("listed", "command"),
    [("3", ["plugins"]), ("[3]", ["eval", "--plugin", "x.py"]), ("{a: b}", ["eval"])],
)
def test_plugins_of_a_file_that_are_no_list_are_refused(
    tmp_path: Path, listed: str, command: list[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(f"plugins: {listed}\n")
    text = complaint(*command, "--config", file)
    assert "expected a list of plugin files or modules" in text


def test_every_flag_of_a_command_is_in_its_help() -> None:
    for name in main.list_commands(click.Context(main)):
        words = succeed(name, "--help", env={"COLUMNS": "100"}).stdout.replace(",", " ").split()
        for one in options_of(name):
            assert one.opts[0] in words, (name, one.opts)
