"""The flags: one table that maps each to its config key, used for parsing, help and docs.

Owns how a command line becomes layers of settings: `--config` YAML first, then flags, then `--set`.
Nothing is validated here; `config.build_config` does that, the same way for every source.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from searchrl.cli.group import plugin_sources
from searchrl.cli.json_output import keep_stdout_clean
from searchrl.config import merge, parse_set
from searchrl.config.endpoint import endpoint_address
from searchrl.config.policy import policy_name
from searchrl.config.tree import nest
from searchrl.errors import ConfigError
from searchrl.plugins.loading import absolute_source
from searchrl.run_folder import looks_like_run, read_config_file

F = TypeVar("F", bound=Callable[..., Any])

Layers = tuple[Mapping[str, Any], ...]

_PATH_KEYS = ("model.name", "init_from")
"""Keys whose value may be a folder: its absolute path is kept, so a run works from anywhere."""


TASKS = "What is played"
MODEL = "Model"
LEARNING = "Learning"
RUN = "The run"
PLUGINS_GROUP = "Plugins"
SETTINGS = "Settings"
OUTPUT = "Output"
"""The groups of flags in the help of a command, in this order; its own flags come first."""

_GROUPS = (TASKS, MODEL, LEARNING, RUN, SETTINGS, PLUGINS_GROUP, OUTPUT)


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `key` is the config key that it sets; empty if it sets none.

    `group` is its heading in the help; without one it belongs to its command.
    """

    name: str
    key: str
    help: str
    type: Any = str
    metavar: str | None = None
    multiple: bool = False
    is_switch: bool = False
    group: str = ""

    @property
    def parameter(self) -> str:
        """The Python name of its value."""
        return self.name.removeprefix("--").partition("/")[0].replace("-", "_")


ENV = Flag("--env", "env", "Environment, by registered name.", metavar="NAME", group=TASKS)
REWARD = Flag(
    "--reward", "reward", "Reward expression, such as 0.2*format+em.", metavar="EXPR", group=TASKS
)
PROTOCOL = Flag("--protocol", "protocol", "Tag protocol.", metavar="NAME", group=TASKS)
RETRIEVER = Flag(
    "--retriever", "retriever", "Retriever: bm25, random, empty, ….", metavar="NAME", group=TASKS
)
MODEL_NAME = Flag(
    "--model", "model.name", "A model or run folder, a hub id, tiny or auto.", str, "MODEL",
    group=MODEL,
)  # fmt: skip
POLICY = Flag(
    "--policy", "policy", "model, scripted, scripted:NAME, endpoint:URL or a network.",
    metavar="POLICY", group=MODEL,
)  # fmt: skip
DEVICE = Flag("--device", "device", "auto, cpu, cuda or mps.", metavar="DEVICE", group=MODEL)
INIT_FROM = Flag(
    "--init-from", "init_from", "Run, checkpoint or adapter to start from.", metavar="RUN|ADAPTER",
    group=MODEL,
)  # fmt: skip
ALGORITHM = Flag(
    "--algorithm", "algorithm.name", "Algorithm: grpo, dapo, gspo, ….", metavar="NAME",
    group=LEARNING,
)  # fmt: skip
MAX_STEPS = Flag("--max-steps", "max_steps", "Optimiser steps.", int, group=LEARNING)
GROUP_SIZE = Flag("--group-size", "rollout.group_size", "Rollouts per prompt.", int, group=LEARNING)
LR = Flag("--lr", "optim.lr", "Learning rate.", float, group=LEARNING)
BETA = Flag(
    "--beta", "algorithm.beta", "Weight of the KL to the starting policy.", float, group=LEARNING
)
ALARM = Flag(
    "--alarm", "alarms.watch", "What an alarm does: warn, stop, rollback, off; may be repeated.",
    str, "NAME[=ACTION]", True, group=LEARNING,
)  # fmt: skip
RUN_DIR = Flag(
    "--run-dir", "run_dir", "Folder for what is written; new or empty.", metavar="DIR", group=RUN
)
RESUME = Flag(
    "--resume", "", "Continue a run from its newest checkpoint.", metavar="RUN", group=RUN
)
ALLOW_CHANGE = Flag(
    "--allow-change", "", "With --resume: go on though data, env or a plugin has changed.",
    is_switch=True, group=RUN,
)  # fmt: skip
DRY_RUN = Flag("--dry-run", "", "Print the plan and stop.", is_switch=True, group=RUN)
GPU_MEMORY = Flag(
    "--gpu-memory", "", "With --dry-run: would it fit a GPU elsewhere, such as 24GB?", str, "SIZE",
    group=RUN,
)  # fmt: skip
CONFIG = Flag("--config", "", "YAML file with any config keys.", metavar="FILE", group=SETTINGS)
SET = Flag(
    "--set", "", "Any config key, such as optim.lr=1e-4; may be repeated.", str, "K=V", True,
    group=SETTINGS,
)  # fmt: skip
SEED = Flag("--seed", "seed", "Seed of everything random.", int, group=SETTINGS)
PLUGIN = Flag(
    "--plugin", "plugins", "A plugin file or module; may be repeated.", str, "FILE", True,
    group=PLUGINS_GROUP,
)  # fmt: skip
STRICT = Flag(
    "--strict",
    "strict_plugins",
    "End with an error if an installed plugin cannot be loaded, or if two offer one name.",
    is_switch=True,
    group=PLUGINS_GROUP,
)
TRUST = Flag(
    "--trust", "", "Allow once the code that a run folder names.", is_switch=True,
    group=PLUGINS_GROUP,
)  # fmt: skip
JSON = Flag(
    "--json", "", "Print one JSON object on stdout and nothing else there.", is_switch=True,
    group=OUTPUT,
)  # fmt: skip

SHARED = (ENV, PROTOCOL, RETRIEVER, CONFIG, SET, SEED, PLUGIN, TRUST, STRICT, JSON)
"""Flags of `train`, `doctor`, `sft`, `eval`, `ask`, `play` and `bench`."""

DETAILS = Flag(
    "--details", "", "Show every metric; with --dry-run, every setting.", is_switch=True,
    group=OUTPUT,
)  # fmt: skip

TRAIN = (
    REWARD,
    MODEL_NAME,
    INIT_FROM,
    POLICY,
    DEVICE,
    ALGORITHM,
    MAX_STEPS,
    GROUP_SIZE,
    LR,
    BETA,
    ALARM,
    RUN_DIR,
    RESUME,
    ALLOW_CHANGE,
    DRY_RUN,
    DETAILS,
    GPU_MEMORY,
)
"""What `train` adds."""

BENCH = (
    Flag("--steps", "", "Steps to time, after one that is not.", click.IntRange(min=1), "N"),
    REWARD,
    MODEL_NAME,
    INIT_FROM,
    POLICY,
    DEVICE,
    ALGORITHM,
    GROUP_SIZE,
)
"""What `bench` adds."""

DOCTOR = (REWARD, MODEL_NAME, INIT_FROM, POLICY, DEVICE, ALGORITHM, BETA)
"""What `doctor` adds."""

SFT = (
    Flag("--traces", "sft.traces", "JSONL of demonstrations instead of scripts.", metavar="FILE"),
    REWARD,
    MODEL_NAME,
    INIT_FROM,
    POLICY,
    DEVICE,
    RUN_DIR,
    RESUME,
    ALLOW_CHANGE,
    DRY_RUN,
    DETAILS,
)
"""What `sft` adds."""

SPLIT = Flag("--split", "eval.split", "Split of the tasks.", metavar="NAME", group=TASKS)

EVAL = (
    Flag("--num-tasks", "eval.num_tasks", "Tasks to evaluate on: the first N.", int),
    Flag("--samples", "eval.num_samples", "Episodes per task, for pass@k and avg@k.", int, "K"),
    Flag("--temperature", "eval.temperature", "0 is greedy.", float, "X"),
    Flag("--against", "", "Another policy on the same tasks: RUN, MODEL or scripted:NAME.", str,
         "POLICY"),
    Flag("--browsecomp", "", "Also write a run of BrowseComp-Plus; a new folder.", str, "DIR"),
    Flag("--forced/--no-forced", "eval.forced",
         "Evaluate a second time with the first turn forced to search.", is_switch=True),
    SPLIT,
    REWARD,
    MODEL_NAME,
    POLICY,
    DEVICE,
    RUN_DIR,
    Flag("--show", "", "Print the first N episodes as well.", click.IntRange(min=0), "N",
         group=OUTPUT),
)  # fmt: skip
"""What `eval` adds."""

ASK = (DEVICE, RUN_DIR)
"""What `ask` adds."""

PLAY = (
    Flag("--index", "", "Number of the task; by default any, or drawn from --seed.", int, "N"),
    SPLIT,
    REWARD,
    RUN_DIR,
)
"""What `play` adds."""

PLUGINS = (CONFIG, PLUGIN, TRUST, STRICT, JSON)
"""The flags of `plugins`."""

NEW = (
    Flag("--package", "", "A package to install instead of one file.", is_switch=True),
    Flag("--force", "", "Replace what is there already.", is_switch=True),
    JSON,
)
"""The flags of `new`."""

CHECK = (
    Flag("--kind", "", "Look among the names of one kind only: env, reward, ….", metavar="KIND"),
    Flag("--set", "", "A setting of what is checked, such as max_turns=6.", str, "K=V", True),
    PLUGIN,
    JSON,
)
"""The flags of `check`."""

_EXPORTED = (
    Flag("--merge", "", "Whole weights: add the adapter to its base.", is_switch=True),
    Flag("--base", "", "Hub id of the adapter's base, if it was a folder here.", metavar="ID"),
)

EXPORT = (*_EXPORTED, PLUGIN, TRUST, STRICT, JSON)
"""The flags of `export`."""

PUSH = (
    *_EXPORTED,
    Flag("--private", "", "Make a new repository private.", is_switch=True),
    Flag("--dry-run", "", "Show files and model card; upload nothing.", is_switch=True),
    PLUGIN,
    TRUST,
    STRICT,
    JSON,
)
"""The flags of `push`."""

TRUSTED = (JSON,)
"""The flags of `trust`."""

RUNS = (
    Flag("--prune", "", "Remove checkpoints, but for the newest and the best.", is_switch=True),
    Flag("--keep", "", "With --prune: how many of the newest stay.", click.IntRange(min=0), "N"),
    Flag("--dry-run", "", "With --prune: only say what would go.", is_switch=True),
    Flag("--verify", "", "Read every file and compare it with its checksum.", is_switch=True),
    JSON,
)
"""The flags of `runs`."""


class GroupedCommand(click.Command):
    """A command whose help shows its flags in groups: its own first, then those of `_GROUPS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group that has flags."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Options", *_GROUPS)}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is None or not isinstance(parameter, click.Option):
                continue
            group = OUTPUT if "--help" in parameter.opts else getattr(parameter, "group", "")
            sections[group or "Options"].append(row)
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


class GroupedOption(click.Option):
    """An option that knows its group."""

    def __init__(self, *names: Any, group: str = "", **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.group = group


def options(*tables: Sequence[Flag]) -> Callable[[F], F]:
    """Decorate a click command with the flags of some tables."""

    def decorate(function: F) -> F:
        for flag in reversed([flag for table in tables for flag in table]):
            function = _option(flag)(function)
        return function

    return decorate


def _option(flag: Flag) -> Callable[[F], F]:
    text = f"{flag.help}  [{flag.key}]" if flag.key else flag.help
    if flag.is_switch:
        # None if the flag was not given: then the config's own default is used.
        facts: dict[str, Any] = {"is_flag": True, "default": None}
    else:
        facts = {"type": flag.type, "multiple": flag.multiple, "metavar": flag.metavar}
    if flag.name == "--json":
        facts |= {"is_eager": True, "callback": keep_stdout_clean}
    return click.option(
        flag.name, flag.parameter, help=text, cls=GroupedOption, group=flag.group, **facts
    )


def read_layers(values: Mapping[str, Any], *tables: Sequence[Flag]) -> Layers:
    """The settings layers of a command line, weakest first: YAML, flags, each `--set`.

    Raises `ConfigError` if the file cannot be read or a `--set` has no key and value.
    """
    file = read_file(values)
    if file and is_of_run(values["config"]):
        file = _of_others(file, values)
    flags: dict[str, Any] = {}
    for flag in (flag for table in tables for flag in table):
        value = values.get(flag.parameter)
        if flag is ALARM:
            flags = merge(flags, _alarm_layer(value or ()))
        elif flag.key and flag.key != "plugins" and value is not None:
            if endpoint_address(values.get("policy") or "") is None:
                value = _absolute(flag.key, value)  # the models of a server are no folders here
            flags = merge(flags, nest(flag.key, value))
    listed = listed_plugins(file)
    if listed:
        file["plugins"] = listed
    sources = [*plugin_sources(click.get_current_context()), *(values.get("plugin") or ())]
    if sources:
        flags["plugins"] = [*listed, *map(absolute_source, sources)]
    assignments = [parse_set(text) for text in values.get("set") or ()]
    return tuple(layer for layer in (file, flags, *assignments) if layer)


def read_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of `--config`, if it was given."""
    return read_config_file(Path(values["config"])) if values.get("config") else {}


def _of_others(file: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run folder's file, which may be a stranger's: it does not say whom to ask.

    A key in the environment would be sent there.
    """
    policy = policy_name(file.get("policy"))
    address = endpoint_address(policy)
    if address is not None and not values.get("policy"):
        raise ConfigError(
            f"{values['config']} lies in a run folder and wants to send prompts to "
            f"{address!r}; if you want that, name it: --policy {policy}"
        )
    return {key: value for key, value in file.items() if key not in ("run_dir", "endpoint")}


def _alarm_layer(assignments: Sequence[str]) -> dict[str, Any]:
    """`kl_blow_up=stop` as a layer; a name alone is the alarm with the action it asks for."""
    named = (text.partition("=") for text in assignments)
    actions = {name.strip(): {"action": action.strip() or "auto"} for name, _, action in named}
    return {"alarms": {"watch": actions}} if actions else {}


def is_of_run(config: str) -> bool:
    """Whether a config file lies in a run folder, which may be a stranger's.

    What it names is not what the user named, and another run with it needs a folder of its own.
    """
    if not config:
        return False
    places = {Path(config).absolute(), Path(config).resolve()}
    return any(
        os.path.lexists(above / "provenance.json") or looks_like_run(above)
        for p in places
        for above in p.parents[:3]
    )


def listed_plugins(file: Mapping[str, Any]) -> list[str]:
    """The plugins that a YAML file names: one, or a list."""
    value = file.get("plugins") or []
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ConfigError(f"plugins = {value!r}: expected a list of plugin files or modules")
    return [absolute_source(source) for source in listed]


def _absolute(key: str, value: Any) -> Any:
    is_folder = key in _PATH_KEYS and value not in ("auto", "tiny", "scratch")
    return str(Path(value).resolve()) if is_folder and os.path.isdir(value) else value


def given_flags(values: Mapping[str, Any], *besides: str) -> list[str]:
    """Names of the flags that were given, without `besides`. A flag with the value 0 was given."""
    given = [name for name, value in values.items() if value is not None and value != ()]
    if plugin_sources(click.get_current_context()) and "plugin" not in given:
        given.append("plugin")  # it stood before the command
    return [f"--{name.replace('_', '-')}" for name in given if name not in besides]
