"""The one configuration tree: how it is built, read, merged and fingerprinted.

Merge order, later wins: field defaults, preset of the resolved model, YAML file, flags and --set.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import AfterValidator, Field, ValidationError

from searchrl.config.alarms import AlarmsConfig
from searchrl.config.curriculum import KEYS, stage_at, stages_of
from searchrl.config.endpoint import MODEL, EndpointConfig, PolicyName
from searchrl.config.faults import FileLayer, explain
from searchrl.config.packaged import find_packaged, is_packaged
from searchrl.config.sections import (
    AUTO,
    AlgorithmConfig,
    CheckpointConfig,
    EngineConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    OptimConfig,
    RolloutConfig,
    SamplingConfig,
    ScaleConfig,
    Section,
    TaskConfig,
)
from searchrl.config.sft import SftConfig
from searchrl.config.yaml_text import MAX_CHARS, MAX_DEPTH, read_yaml
from searchrl.contracts.settings import FilePath
from searchrl.errors import ConfigError, show_value, suggest, suggest_path

MIN_WINDOW = 64
"""Fewest tokens of a wrapper's setting `window`: less is no window of text."""

TASK_KEYS = ("env", "wrapper", "reward", "judge", "protocol", "retriever")
"""Keys that, at the top level, are short forms of the first entry of `tasks`."""

NAMED_SECTIONS = ("model", "algorithm")
"""Keys whose text is read as the name: `model: PATH`, `algorithm: dapo`."""

_PRESETS = "searchrl:assets/presets"

_PLUGIN_KEYS = ("env", "wrapper", "judge", "protocol", "retriever", "backend")

WHOLE_KEYS = ("mix", "weight", "difficulty", "reward")
"""Mappings that a later layer replaces as a whole: their values mean something only together."""


_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+")


def describe_stages(tasks: Sequence[TaskConfig]) -> list[str]:
    """A sentence for everything that changes: `tasks.0.weight: 1, then 0.5 after step 30`."""
    sentences = []
    for place, task in enumerate(tasks):
        for key in KEYS:
            (_, first), *others = stages_of(getattr(task, key))
            if others:
                then = [f"{value} after step {begin}" for begin, value in others]
                sentences.append(f"tasks.{place}.{key}: {', then '.join([str(first), *then])}")
    return sentences


def _ensure_weight(tasks: list[TaskConfig]) -> list[TaskConfig]:
    weights = [stages_of(task.weight) for task in tasks]
    for step in sorted({begin for stages in weights for begin, _ in stages}):
        if not any(stages[stage_at(stages, step)][1] for stages in weights):
            raise ValueError(f"every weight is 0 after step {step}; give one task a weight above 0")
    return tasks


class Part(NamedTuple):
    """A plugin part that a run names: the key of its section, its kind, name and settings."""

    key: str
    kind: str
    name: str
    settings: Mapping[str, Any]


class RunConfig(Section):
    """The whole run."""

    tasks: Annotated[list[TaskConfig], Field(min_length=1), AfterValidator(_ensure_weight)] = Field(
        default=[TaskConfig()]
    )
    """Tasks to train on. One entry is the normal case; several make a mixture, with metrics kept
    per task. The short forms `env`, `wrapper`, `reward`, `judge`, `protocol` and `retriever` write
    the first entry."""
    model: ModelConfig = ModelConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    rollout: RolloutConfig = RolloutConfig()
    sampling: SamplingConfig = SamplingConfig()
    engine: EngineConfig = EngineConfig()
    scale: ScaleConfig = ScaleConfig()
    optim: OptimConfig = OptimConfig()
    eval: EvalConfig = EvalConfig()
    endpoint: EndpointConfig = EndpointConfig()
    sft: SftConfig = SftConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    alarms: AlarmsConfig = AlarmsConfig()
    policy: PolicyName = MODEL
    """`model`; `scripted` replays the environment's expert, `scripted:NAME` another of its scripts;
    `endpoint:URL` asks the model `model.name` of an [OpenAI-compatible
    server](../how-to/endpoint.md). Only `model` can be trained."""
    normalization: Literal["N1", "N2", "N3"] = "N1"
    """Comparison of answers with the accepted ones, wherever that is done: [N1, N2 or
    N3](rewards.md#normalisation). N1 is the usual one and drops all punctuation, so 3.5 is 35; N3
    tells such answers apart."""
    preset: str | None = None
    """Settings for a kind of model; everything you write wins over them. By default the embedded
    tiny model gets `tiny`, any other model `qwen3_4b_lora`. `package:path` is a preset that an
    installed package brings; it lies over that of the model. See [presets](settings.md)."""
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
    max_sampled_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens that the policy may write in training: the step that reaches them is the last one,
    also before `max_steps`. The schedule of the learning rate does not know of it."""
    max_episodes: Annotated[int, Field(ge=1)] | None = None
    """The same for episodes; one that begins as another one did counts, too."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """`auto`: cuda if torch sees one, then mps, then cpu."""
    num_threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch; 0 leaves torch's choice. It changes speed and the last bits of sums:
    fix it when figures must repeat exactly. At most 1,024: no machine has so many cores, and torch
    crashes where the system gives it no more threads."""
    run_dir: str | None = None
    """The run folder; new or empty. By default `runs/ENV-DATE-TIME`."""
    init_from: Annotated[FilePath, Field(min_length=1)] | None = None
    """A run folder, checkpoint or adapter whose weights the policy starts from, such as that of
    `searchrl sft`. Of a run, [what it learned to play
    with](../how-to/run-and-resume.md#start-from-a-run) is taken over too."""

    def parts(self) -> Iterator[Part]:
        """Yield every plugin part that the run names, rewards apart."""
        for number, task in enumerate(self.tasks):
            for kind in ("env", "wrapper", "protocol", "retriever", "judge"):
                if (named := getattr(task, kind)) is not None:
                    key = f"tasks.{number}.{kind}"
                    yield Part(key, kind, named.name, named.settings)
        algorithm, generator, backend = self.algorithm, self.engine.generator, self.scale.backend
        yield Part("algorithm.settings", "algorithm", algorithm.name, algorithm.settings)
        yield Part("engine.generator", "generator", generator.name, generator.settings)
        if backend is not None:
            yield Part("scale.backend", "backend", backend.name, backend.settings)
        for number, tracker in enumerate(self.log.trackers):
            yield Part(f"log.trackers.{number}", "tracker", tracker.name, tracker.settings)
        for alarm, spec in self.alarms.watch.items():
            yield Part(f"alarms.watch.{alarm}", "alarm", alarm, spec.settings)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain JSON-able values."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The tree as YAML that loads back to an equal config."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    @property
    def context_tokens(self) -> int:
        """Most tokens that the model reads at once: no more than the widest `window` of a task.

        A setting `window` of a wrapper counts if it is a whole number of at least `MIN_WINDOW`.
        """
        limit = min(self.rollout.max_total_tokens, self.model.max_context)
        wrappers = (task.wrapper for task in self.tasks)
        windows = [w.settings.get("window") if w else None for w in wrappers]
        return max(
            min(one, limit) if isinstance(one, int) and one >= MIN_WINDOW else limit
            for one in windows
        )

    @property
    def fingerprint(self) -> str:
        """First 16 hex digits of the SHA-256 of what determines results (not where they go)."""
        content = self.to_dict()
        for key in ("run_dir", "log", "checkpoint", "num_threads"):
            content.pop(key)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def preset_names() -> list[str]:
    """Names of the presets shipped with the package."""
    folder = find_packaged(_PRESETS)
    assert folder is not None
    return sorted(file.stem for file in folder.glob("*.yaml"))


def load_preset(name: str) -> dict[str, Any]:
    """Read a preset by name. Raises `ConfigError` with near matches if there is none.

    `package:path` is the file `path.yaml` in an installed package.
    """
    place = name if is_packaged(name) else f"{_PRESETS}/{name}"
    if path := find_packaged(f"{place}.yaml"):
        return load_yaml(path)
    if not is_packaged(name):
        raise ConfigError(f"unknown preset '{name}'.{suggest(name, preset_names())}")
    package, _, inner = name.partition(":")
    raise ConfigError(
        f"there is no preset '{name}': no file '{inner}.yaml' in an installed package "
        f"'{package}'. Install that package, or use one of {', '.join(preset_names())}"
    )


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
            f"{show_value(parsed.value)}"
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


def parse_sets(assignments: Sequence[str]) -> dict[str, Any]:
    """The settings of several `a.b=c` together, later ones win. Raises `ConfigError`."""
    settings: dict[str, Any] = reduce(merge, map(parse_set, assignments), {})
    return settings


def nest(key: str, value: Any) -> dict[str, Any]:
    """Turn `a.b` and `c` into `{"a": {"b": c}}`."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def merge(base: Any, over: Any, key: str = "") -> Any:
    """Deep-merge two values of a `key`, `over` wins; lists and scalars are replaced.

    A digit key in `over` (`--set tasks.0.weight=2`) addresses an element of a list in `base`; the
    number after the last one adds an element (`--set tasks.1.env=corpus`). A mapping of weights or
    stages (`WHOLE_KEYS`) is replaced, and so is a mapping whose `name` changes: settings of another
    plugin do not carry over.
    """
    base, over = _as_named(key, base), _as_named(key, over)
    if isinstance(base, list) and isinstance(over, Mapping) and all(map(_is_index, over)):
        items = merge(dict(enumerate(base)), {int(place): item for place, item in over.items()})
        if len(items) <= max(items, default=-1):
            raise ConfigError(
                f"'{key}' has {len(base)} entries, so no {key}.{max(items)}; the next one to add "
                f"is {key}.{len(base)}"
            )
        return list(items.values())
    if not (isinstance(base, Mapping) and isinstance(over, Mapping)) or key in WHOLE_KEYS:
        return over
    is_renamed = base.get("name", AUTO) not in (AUTO, over.get("name", base.get("name")))
    if is_renamed and key in _PLUGIN_KEYS:
        return over
    if is_renamed and key == "algorithm":  # the other keys belong to every algorithm
        base = {**base, "settings": {}}
    return {**base, **{name: merge(base.get(name), value, name) for name, value in over.items()}}


def _is_index(key: object) -> bool:
    return isinstance(key, int) or (isinstance(key, str) and key.isdecimal() and len(key) < 10)


def _as_named(key: str, value: Any) -> Any:
    """`corpus` → `{"name": "corpus"}` for the keys that name a plugin."""
    return {"name": value} if isinstance(value, str) and key in _PLUGIN_KEYS else value


def _canonical(layer: Mapping[str, Any]) -> dict[str, Any]:
    """A layer whose short forms, `env: corpus`, are keys of the first task."""
    data = {
        key: {"name": value} if isinstance(value, str) and key in NAMED_SECTIONS else value
        for key, value in layer.items()
        if key not in TASK_KEYS
    }
    if isinstance(algorithm := data.get("algorithm"), Mapping):
        known = {k: v for k, v in algorithm.items() if k in AlgorithmConfig.model_fields}
        if plugin_keys := {k: v for k, v in algorithm.items() if k not in known}:
            data["algorithm"] = {**known, "settings": merge(known.get("settings", {}), plugin_keys)}
    if short := {key: _as_named(key, layer[key]) for key in TASK_KEYS if key in layer}:
        data["tasks"] = merge(data["tasks"], {"0": short}) if "tasks" in data else {"0": short}
    return data


def build_config(*layers: Mapping[str, Any]) -> RunConfig:
    """Merge layers (later wins) and validate.

    Raises `ConfigError` that lists every wrong key or value at once, with suggestions.
    """
    # All defaults, so that `--set sft.stages.0.steps=100` finds the stage it addresses.
    merged: dict[str, Any] = RunConfig().to_dict()
    for layer in layers:
        try:
            merged = merge(merged, _canonical(layer))
        except ConfigError as error:
            where = f"{layer.path}: " if isinstance(layer, FileLayer) else ""
            raise ConfigError(f"{where}{error}") from None
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        known = [*TASK_KEYS, *_paths(RunConfig().to_dict())]
        lines = explain(error, merged, layers, known)
        raise ConfigError(f"the configuration is not valid:\n{lines}") from None  # it shows values


def _paths(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield every key of a tree, as `sft.stages.0.lr`."""
    for name, value in tree.items():
        yield f"{above}{name}"
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, Mapping):
            yield from _paths(first, f"{above}{name}." if first is value else f"{above}{name}.0.")
