"""The options that commands share, and the layers of settings that a command line is made into."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from searchrl.config import merge, parse_set
from searchrl.config.endpoint import endpoint_address
from searchrl.config.sections import MODEL_WORDS
from searchrl.config.tree import nest
from searchrl.errors import ConfigError
from searchrl.plugins.loading import absolute_source
from searchrl.run_folder import looks_like_run, read_config_file
from searchrl.screen.lines import keep_stdout_clean

F = TypeVar("F", bound=Callable[..., Any])

_PATH_KEYS = ("model.name", "init_from")
"""Keys whose value may be a folder: its absolute path is kept, so a run works from anywhere."""

OWN = "Options"
TASKS = "What is played"
MODEL = "Model"
LEARNING = "Learning"
RUN = "The run"
PLUGINS = "Plugins"
SETTINGS = "Settings"
OUTPUT = "Output"

_GROUPS = (OWN, TASKS, MODEL, LEARNING, RUN, SETTINGS, PLUGINS, OUTPUT)
"""The headings of options in the help of a command, in this order."""


class Option(click.Option):
    """An option that knows the config key that it sets, if any, and its heading in the help."""

    def __init__(self, *args: Any, key: str, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.key, self.group = key, group


class Command(click.Command):
    """A command whose help shows its options below their headings."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options; a `--plugin` that stands before the command is one of its own."""
        rest = super().parse_args(ctx, args)
        before = ctx.find_root().params.get("plugin") if ctx.parent else None
        if before and "plugin" in ctx.params:
            ctx.params["plugin"] = (*before, *ctx.params["plugin"])
            ctx.set_parameter_source("plugin", ParameterSource.COMMANDLINE)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading that has options."""
        sections: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
        for option in self.get_params(ctx):
            if row := option.get_help_record(ctx):
                usual = OUTPUT if "--help" in option.opts else OWN
                sections[getattr(option, "group", usual)].append(row)
        for name, rows in sections.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)


def option(
    name: str, help: str, group: str = OWN, key: str = "", **settings: Any
) -> Callable[[F], F]:
    """As `click.option`; `key` is the config key that it sets, `group` its heading.

    Behind the flag in `name` may stand a word for its value, as in `--seed N`.
    """
    flag, _, metavar = name.partition(" ")
    text = f"{help}  [{key}]" if key else help
    settings |= {"metavar": metavar} if metavar else {}
    return click.option(flag, cls=Option, help=text, key=key, group=group, **settings)


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator."""

    def decorate(function: F) -> F:
        for one in reversed(options):
            function = one(function)
        return function

    return decorate


ENV = option("--env NAME", "Environment, by registered name.", TASKS, "env")
AGENT = option(
    "--agent COMMAND",
    "An agent that acts: a command, or FILE.py:FUNCTION.",
    TASKS,
    "wrapper",
    callback=lambda _context, _option, value: value and {"name": "agent", "command": value},
)
REWARD = option("--reward EXPR", "Reward expression, such as 0.2*format+em.", TASKS, "reward")
PROTOCOL = option("--protocol NAME", "Tag protocol.", TASKS, "protocol")
RETRIEVER = option("--retriever NAME", "Retriever: bm25, random, empty, ….", TASKS, "retriever")
SPLIT = option("--split NAME", "Split of the tasks.", TASKS, "eval.split")
MODEL_NAME = option(
    "--model MODEL", "A model or run folder, a hub id, tiny or auto.", MODEL, "model.name"
)
POLICY = option(
    "--policy POLICY", "model, scripted, scripted:NAME or endpoint:URL.", MODEL, "policy"
)
DEVICE = option("--device DEVICE", "auto, cpu, cuda or mps.", MODEL, "device")
INIT_FROM = option(
    "--init-from RUN|ADAPTER", "Run, checkpoint or adapter to start from.", MODEL, "init_from"
)
ALGORITHM = option(
    "--algorithm NAME", "Algorithm: grpo, dapo, gspo, ….", LEARNING, "algorithm.name"
)
GROUP_SIZE = option(
    "--group-size", "Rollouts per prompt.", LEARNING, "rollout.group_size", type=int
)
BETA = option(
    "--beta", "Weight of the KL to the starting policy.", LEARNING, "algorithm.beta", type=float
)
RUN_DIR = option("--run-dir DIR", "Folder for what is written; new or empty.", RUN, "run_dir")
CONFIG = option("--config FILE", "YAML file with any config keys.", SETTINGS)
SET = option(
    "--set K=V", "Any config key, such as optim.lr=1e-4; may be repeated.", SETTINGS, multiple=True
)
SEED = option("--seed", "Seed of everything random.", SETTINGS, "seed", type=int)
PLUGIN = option(
    "--plugin FILE", "A plugin file or module; may be repeated.", PLUGINS, "plugins", multiple=True
)
STRICT = option(
    "--strict",
    "End with an error if an installed plugin cannot be loaded, or if two offer one name.",
    PLUGINS,
    "strict_plugins",
    is_flag=True,
)
TRUST = option("--trust", "Allow once the code that a run folder names.", PLUGINS, is_flag=True)
JSON = option(
    "--json",
    "Print one JSON object on stdout and nothing else there.",
    OUTPUT,
    is_flag=True,
    is_eager=True,
    callback=keep_stdout_clean,
)
DETAILS = option("--details", "Show every figure.", OUTPUT, is_flag=True)

LOADED = together(PLUGIN, TRUST, STRICT, JSON)
"""Options of commands that load the plugins of a run."""
SHARED = together(ENV, PROTOCOL, RETRIEVER, CONFIG, SET, SEED, LOADED)
"""Options of `train`, `doctor`, `sft`, `eval`, `ask`, `play` and `bench`."""
TRAINED = together(REWARD, MODEL_NAME, INIT_FROM, POLICY, DEVICE)
"""Options of the policy and its reward."""
MADE = together(
    RUN_DIR,
    option("--resume RUN", "Continue a run from its newest checkpoint.", RUN),
    option(
        "--allow-change",
        "With --resume: go on though data, env or a plugin has changed.",
        RUN,
        is_flag=True,
    ),
    option("--dry-run", "Print the plan and stop.", RUN, is_flag=True),
    option("--details", "Show every figure; with --dry-run, every setting.", OUTPUT, is_flag=True),
)
"""Options of commands that make a run with checkpoints."""


def read_layers() -> tuple[Mapping[str, Any], ...]:
    """The settings layers of the command line, weakest first: YAML, options, each `--set`."""
    context = click.get_current_context()
    values = context.params
    file = read_config_file(Path(values["config"])) if values.get("config") else {}
    if file and is_of_run(values["config"]):
        file = _of_others(file, values)
    # The models of a server are no folders here.
    is_local = endpoint_address(values.get("policy") or "") is None
    given: dict[str, Any] = {}
    for one in context.command.params:
        if not isinstance(one, Option) or one.name is None or not _is_given(context, one.name):
            continue
        value = values[one.name]
        if one.key in _PATH_KEYS and is_local and value not in MODEL_WORDS:
            value = str(Path(value).resolve()) if os.path.isdir(value) else value
        if one.key and one.key != "plugins":
            given = merge(given, nest(one.key, value))
    listed = listed_plugins(file)
    if listed:
        file["plugins"] = listed
    if sources := values.get("plugin"):
        given["plugins"] = [*listed, *map(absolute_source, sources)]
    assignments = map(parse_set, values.get("set") or ())
    return tuple(layer for layer in (file, given, *assignments) if layer)


def given_options(*besides: str) -> list[str]:
    """The options that were given, as they are typed, without `besides`."""
    context = click.get_current_context()
    given = [n for n in context.params if n not in besides and _is_given(context, n)]
    return [f"--{name.replace('_', '-')}" for name in given]


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _of_others(file: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run folder's file but an endpoint, to which a key would be sent."""
    policy = file.get("policy")
    address = endpoint_address(str(policy))
    if address is not None and not values.get("policy"):
        raise ConfigError(
            f"{values['config']} lies in a run folder and wants to send prompts to "
            f"{address!r}; if you want that, name it: --policy {policy}"
        )
    return {key: value for key, value in file.items() if key not in ("run_dir", "endpoint")}


def is_of_run(config: str) -> bool:
    """True if a config file lies in a run folder, which may be a stranger's.

    The user has not named what it names, and another run with it needs a folder of its own.
    """
    places = {Path(config).absolute(), Path(config).resolve()}
    return any(
        os.path.lexists(above / "provenance.json") or looks_like_run(above)
        for place in places
        for above in place.parents[:3]
    )


def listed_plugins(file: Mapping[str, Any]) -> list[str]:
    """The plugins that a YAML file names: one, or a list."""
    value = file.get("plugins") or []
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ConfigError(f"plugins = {value!r}: expected a list of plugin files or modules")
    return [absolute_source(source) for source in listed]
