"""The one configuration tree: how it is built, read, merged and fingerprinted.

Owns `RunConfig`, the merging of YAML and `--set a.b=c`, presets and the fingerprint; `sections.py`
has the settings. Unknown keys are refused with a suggestion. It loads no plugin and no model: the
plugin registry turns names into objects. Callers: the CLI, the programs, the Python API.

Merge order, later wins: field defaults, preset of the resolved model, YAML file, flags and --set.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from searchrl.config.alarms import AlarmsConfig
from searchrl.config.curriculum import check_tasks
from searchrl.config.endpoint import EndpointConfig
from searchrl.config.faults import FileLayer, explain
from searchrl.config.packaged import find_packaged, is_packaged
from searchrl.config.policy import PolicyName
from searchrl.config.records import CheckpointConfig, LogConfig
from searchrl.config.sections import (
    AUTO,
    AlgorithmConfig,
    EngineConfig,
    EvalConfig,
    ModelConfig,
    Named,
    OptimConfig,
    RolloutConfig,
    SamplingConfig,
    Section,
    TaskConfig,
    Text,
)
from searchrl.config.sft import SftConfig
from searchrl.config.yaml_text import MAX_CHARS, MAX_DEPTH, read_yaml
from searchrl.errors import ConfigError, show_value, suggest, suggest_path

TASK_KEYS = ("env", "reward", "judge", "protocol", "retriever")
"""Keys that, at the top level, are short forms of the first entry of `tasks`."""

NAMED_SECTIONS = ("model", "algorithm", "policy")
"""Keys whose text is read as the name: `model: PATH`, `algorithm: dapo`, `policy: scripted`."""

_PLUGIN_KEYS = (*TASK_KEYS, "policy")

WHOLE_KEYS = ("mix", "weight", "difficulty")
"""Mappings that a later layer replaces as a whole: their values mean something only together."""


_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")
_INDEX = re.compile(r"[0-9]{1,9}")
_KINDS = {type(None): "nothing", list: "a list", str: "a text", bool: "true or false"}


class RunConfig(Section):
    """The whole run."""

    tasks: Annotated[list[TaskConfig], Field(min_length=1)] = Field(default=[TaskConfig()])
    """What is trained on. One entry is the normal case; several make a mixture, with metrics kept
    per task. The short forms `env`, `reward`, `judge`, `protocol` and `retriever` write the first
    entry."""
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    rollout: RolloutConfig = RolloutConfig()
    sampling: SamplingConfig = SamplingConfig()
    engine: EngineConfig = EngineConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()
    endpoint: EndpointConfig = EndpointConfig()
    sft: SftConfig = SftConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    alarms: AlarmsConfig = AlarmsConfig()
    policy: PolicyName = Named(name="model")
    """`model`; `scripted` replays the environment's expert, `scripted:NAME` another of its scripts;
    `endpoint:URL` asks the model `model.name` of an [OpenAI-compatible
    server](evaluate.md#api-models). Any other name is that of a
    [network](hooks.md#register_policies) for environments of choices, with its settings beside the
    name. `model` and networks can be trained."""
    preset: str | None = None
    """Settings for a kind of model; everything you write wins over them. By default the embedded
    tiny model gets `tiny`, any other model `qwen3_4b_lora`, and a network `small_network`.
    `package:path` is a preset that an installed package brings; it lies over that of the model. See
    [presets](#presets)."""
    plugins: list[str] = Field(default_factory=list)
    """Plugin files or modules, as with `--plugin`. A run remembers them."""
    strict_plugins: bool = False
    """If an installed plugin cannot be loaded, or two plugins offer the same name, the program
    ends. By default the plugin or the name is left out, and a message says so. A plugin in
    `plugins` was asked for: the program ends in any case if it cannot be loaded."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Everything random is derived from it: tasks, sampling, a new adapter's weights. Equal seeds
    give equal metrics on one machine."""
    max_steps: Annotated[int, Field(ge=0)] = 200
    """Optimiser steps. Presets set their own."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """`auto`: cuda if torch sees one, then mps, then cpu."""
    num_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch; 0 leaves torch's choice. It changes speed and the last bits of sums:
    fix it when figures must repeat exactly. At most 1,024: no machine has so many cores, and torch
    crashes where the system gives it no more threads."""
    run_dir: str | None = None
    """The run folder; new or empty. By default `runs/ENV-DATE-TIME`."""
    init_from: Text | None = None
    """A run folder, checkpoint or adapter whose weights the policy starts from, such as that of
    `searchrl sft`. Of a run, [what it learned to play with](cli.md#starting-from-a-run) is taken
    over too."""

    @field_validator("tasks", mode="after")
    @classmethod
    def _fit_together(cls, value: list[TaskConfig]) -> list[TaskConfig]:
        check_tasks(value)
        return value

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain JSON-able values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The tree as YAML that loads back to an equal config."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of what determines results (not where they go)."""
        content = self.to_dict()
        for key in ("run_dir", "log", "checkpoint", "num_threads"):
            content.pop(key)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def preset_names() -> list[str]:
    """Names of the presets shipped with the package."""
    folder = resources.files("searchrl") / "assets" / "presets"
    return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """Read a preset by name. Raises `ConfigError` with near matches if there is none.

    `package:path` is the file `path.yaml` in an installed package.
    """
    if is_packaged(name):
        if (path := find_packaged(f"{name}.yaml")) is None:
            package, _, inner = name.partition(":")
            raise ConfigError(
                f"there is no preset '{name}': no file '{inner}.yaml' in an installed package "
                f"'{package}'. Install that package, or use one of {', '.join(preset_names())}"
            )
        return load_yaml(path)
    if name not in preset_names():
        raise ConfigError(f"unknown preset '{name}'.{suggest(name, preset_names())}")
    text = (resources.files("searchrl") / "assets" / "presets" / f"{name}.yaml").read_text("utf-8")
    return dict(yaml.safe_load(text) or {})


def load_yaml(path: str | Path) -> FileLayer:
    """Read a config file.

    Raises `ConfigError` if it is missing, is not UTF-8 or YAML (with line) or not a mapping.
    """
    try:
        with Path(path).open("rb") as file:  # not more: `/dev/zero` has no end
            data = file.read(4 * MAX_CHARS + 1)
        parsed = read_yaml(data.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(
            f"cannot read config '{path}': {error.strerror or error}; expected a YAML file "
            "of config keys, such as `searchrl train --dry-run --details` prints, or the "
            f"config.yaml of a run.{suggest_path(path)}"
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        text = f"config '{path}' is not UTF-8 text (line {line}); save it as UTF-8"
        raise ConfigError(text) from error
    except ValueError as error:
        raise ConfigError(f"config '{path}' is not valid YAML: {error}") from error
    if not isinstance(parsed.value, dict):
        raise ConfigError(
            f"config '{path}' must be a mapping of keys such as `seed: 1`, and holds "
            f"{_KINDS.get(type(parsed.value), 'a value')}"
        )
    return FileLayer(parsed.value, path, parsed.lines)


def parse_set(assignment: str) -> dict[str, Any]:
    """Turn `a.b=c` into `{"a": {"b": c}}`; the value is read as YAML (`1e-4` as a number).

    Raises `ConfigError` if there is no `=` or no key.
    """
    key, separator, raw = assignment.partition("=")
    parts = key.strip().split(".")
    if not separator or not all(parts) or len(parts) > MAX_DEPTH:
        raise ConfigError(
            f"cannot read --set {show_value(assignment)}: expected KEY=VALUE such as "
            "--set optim.lr=1e-4"
        )
    try:
        # `@prompt.txt` means a file here, and nothing in YAML.
        value: Any = raw if raw.startswith("@") else read_yaml(raw).value
    except ValueError as error:
        text = f"cannot read the value of --set {show_value(assignment)}: {error}"
        raise ConfigError(text) from error
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = float(value)  # YAML 1.1 reads 1e-4 as text, but it means a number
    return nest(key.strip(), value)


def nest(key: str, value: Any) -> dict[str, Any]:
    """Turn `a.b` and `c` into `{"a": {"b": c}}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Deep-merge mappings, `over` wins; lists and scalars are replaced.

    A digit key in `over` (`--set tasks.0.weight=2`) addresses an element of a list in `base`; the
    number after the last one adds an element (`--set tasks.1.env=corpus`).
    A mapping of weights (`mix`) is replaced, not added to. So is a mapping whose `name` changes:
    settings of another plugin do not carry over.
    """
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if key == "algorithm" and isinstance(old, Mapping) and _is_renamed(old, value):
            # The keys beside the name belong to every algorithm; `settings` to one only.
            old = {k: v for k, v in old.items() if k != "settings"}
        if key in TASK_KEYS:
            old, value = _as_named(key, old), _as_named(key, value)
        if not isinstance(value, Mapping):
            result[key] = value
        elif isinstance(old, list) and _addresses(key, value):
            result[key] = items = list(old)
            for position, item in value.items():
                if int(position) > len(items):
                    raise ConfigError(
                        f"'{key}' has {len(items)} entries, so no {key}.{position}; the next one "
                        f"to add is {key}.{len(items)}"
                    )
                if int(position) == len(items):
                    items.append({})
                items[int(position)] = merge({"": items[int(position)]}, {"": item})[""]
        elif key in WHOLE_KEYS or (key in _PLUGIN_KEYS and _is_renamed(old, value)):
            result[key] = dict(value)
        else:
            result[key] = merge(old, value) if isinstance(old, Mapping) else dict(value)
    return result


def _addresses(key: str, value: Mapping[Any, Any]) -> bool:
    """Whether the keys of `value` are those of elements in a list; steps of a weight are none."""
    is_whole = key in WHOLE_KEYS and any(isinstance(k, int) for k in value)
    return not is_whole and all(_INDEX.fullmatch(str(k)) for k in value)


def _is_renamed(old: Any, value: Any) -> bool:
    """Whether `value` names another plugin than `old` does; `auto` is not decided yet."""
    both = isinstance(old, Mapping) and isinstance(value, Mapping)
    names = [mapping["name"] for mapping in (old, value) if "name" in mapping] if both else []
    return len(names) == 2 and names[0] not in (AUTO, names[1])


def _canonical(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a layer's short forms: `env: corpus` as a key of the first task, `model: PATH`."""
    data = {
        key: {"name": value} if key in NAMED_SECTIONS and isinstance(value, str) else value
        for key, value in layer.items()
        if key not in TASK_KEYS
    }
    short = {key: _as_named(key, layer[key]) for key in TASK_KEYS if key in layer}
    if not short:
        return data
    addressed = {"tasks": {"0": short}}
    return merge(data, addressed) if "tasks" in data else data | addressed


def _as_named(key: str, value: Any) -> Any:
    """`corpus` → `{"name": "corpus"}` for the keys that name a plugin."""
    return {"name": value} if isinstance(value, str) and key != "reward" else value


def build_config(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge layers (later wins) and validate.

    Raises `ConfigError` that lists every wrong key or value at once, with suggestions.
    """
    # All defaults, so that `--set sft.stages.0.steps=100` finds the stage it addresses.
    merged: dict[str, Any] = _canonical(RunConfig().to_dict())
    for layer in layers:
        try:
            merged = merge(merged, _canonical(layer))
        except ConfigError as error:
            where = f"{layer.path}: " if isinstance(layer, FileLayer) else ""
            raise ConfigError(f"{where}{error}") from None
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        lines = explain(error, merged, layers, RunConfig, TASK_KEYS)
        raise ConfigError(f"the configuration is not valid:\n{lines}") from error
