"""The model card: what a policy is, what it was measured to do, and how to use it, from its run.

Owns what the card says; its words are in `assets/model_card.md.jinja`, its header is written by
`huggingface_hub`. Every figure is the run's own; what the run does not know (a licence, say) is
not in the card. Caller: `export`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from jinja2 import Environment, StrictUndefined
from tokenizers import Tokenizer

from searchrl.config import RunConfig
from searchrl.engine.episodes.world import name_defaults
from searchrl.plugins import Registry
from searchrl.results.source import Source
from searchrl.run_folder.policies import read_space
from searchrl.trust.texts import clean

TEMPLATE = Path(__file__).resolve().parents[1] / "assets" / "model_card.md.jinja"

Kind = Literal["adapter", "merged", "whole", "network"]

BASE = "base"
"""The folder of an export that holds the base of its adapter, where no hub has it."""

_HEADLINES = ("reward", "em", "cover_em", "f1", "env", "searches", "passive", "support_recall")
"""The metrics that a card shows, where they were measured."""

_LIBRARIES = {"adapter": "peft", "network": "searchrl"}

_TIMES = {"before": "before training", "after": "after training", "during": "this checkpoint"}


@dataclass(frozen=True, slots=True)
class Weights:
    """What the export holds.

    `base`: the adapter's base as others know it, or `BASE`. `repo`: where it is uploaded to.
    """

    name: str
    kind: Kind
    base: str | None
    repo: str | None = None

    @property
    def place(self) -> str:
        """What a reader of the card loads it from."""
        return self.repo or "."


def is_hub_id(name: str) -> bool:
    """Whether a name is `user/model`, as those of a hub are."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def make_card(source: Source, weights: Weights, registry: Registry, prompt: str = "") -> str:
    """The text of a model card, its header included. `prompt` is that of `find_prompt`."""
    config, provenance = name_defaults(source.config, registry), source.provenance
    task, figures = config.tasks[0], source.figures
    protocol = registry.make_protocol(
        registry.get("env", task.env.name), task.protocol.name, task.protocol.settings
    )
    stages = [task.reward] if isinstance(task.reward, str) else [s.expr for s in task.reward]
    envs = [one.env.name for one in config.tasks]
    hub_base = weights.base if weights.base is not None and is_hub_id(weights.base) else None
    header = ModelCardData(
        base_model=hub_base,
        library_name=_LIBRARIES.get(weights.kind, "transformers"),
        pipeline_tag=_task_of(weights),
        tags=["searchrl", "reinforcement-learning", "search-agent", config.algorithm.name],
        model_name=weights.name,
        eval_results=_results(figures, envs, config.eval.split, _task_of(weights)) or None,
    )
    space = read_space(source.policy)
    made = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # What a run says is text: no markup of the page, no code of the snippets, no end of a block.
    made.filters |= {"plain": _plain, "code": _code, "literal": json.dumps, "shell": shlex.quote}
    body = made.from_string(TEMPLATE.read_text("utf-8")).render(
        weights=weights,
        base=BASE,
        is_hub_base=hub_base is not None,
        config=config,
        line=_network_line(config, weights),
        actions=[] if space is None else space.actions,
        envs=envs,
        step=source.step,
        program=provenance.get("program") or "train",
        times=[_TIMES[time] for time in figures],
        rows=_rows(figures),
        temperature=config.eval.temperature,
        num_tasks=max((m["n"] for one in figures.values() for m in one.values()), default=0),
        protocol_name=task.protocol.name,
        instruction=clean(protocol.instruction) if config.model.instructions else "",
        fence=_fence(protocol.instruction),
        stops=list(protocol.stops),
        prompt=prompt,
        reward=", then ".join(stages),
        facts=_facts(source),
    )
    return f"---\n{header.to_yaml()}\n---\n\n{body.strip()}\n"


def find_prompt(source: Source) -> str:
    """A prompt of the run as the model read it, as a Python expression; "" if none was kept.

    Raises `DamagedError` for a file of rollouts that cannot be read.
    """
    row = next(source.run.rollouts(), None)
    if row is None or not (source.policy / "tokenizer.json").is_file():
        return ""
    num_prompt = len(row["authors"]) - len(row["authors"].lstrip("P"))
    tokenizer = Tokenizer.from_file(str(source.policy / "tokenizer.json"))
    text = tokenizer.decode(row["ids"][:num_prompt], skip_special_tokens=False)
    return "\n".join(f"    {line!r}" for line in text.splitlines(keepends=True))


def _task_of(weights: Weights) -> str:
    """The kind of task as the Hub calls it."""
    return "reinforcement-learning" if weights.kind == "network" else "text-generation"


def _network_line(config: RunConfig, weights: Weights) -> str:
    """How a network is evaluated, from its folder; one that is uploaded is downloaded first."""
    folder = "." if weights.repo is None else weights.name
    words = ["searchrl", "eval", "--env", config.tasks[0].env.name]
    words += ["--policy", config.policy.name]
    for name, value in config.policy.settings.items():
        words += ["--set", f"policy.{name}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join([*words, "--set", f"init_from={folder}"])


def _plain(value: Any) -> str:
    """Text of one line that Markdown and HTML take for nothing else."""
    text = " ".join(clean(str(value)).split())
    return re.sub(r"[\\`*\[\]|]", r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;"))


def _code(value: Any) -> str:
    """Text between two backticks, on one line."""
    return " ".join(clean(str(value)).split()).replace("`", "'")


def _fence(text: str) -> str:
    """A fence that no line of the text can end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(4, longest + 1)


def _results(
    figures: Mapping[str, Mapping[str, Any]], envs: list[str], split: str, task: str
) -> list[EvalResult]:
    """The final figures as the Hub reads them."""
    measured = figures.get("after") or figures.get("during") or {}
    return [
        EvalResult(
            task_type=task,
            dataset_type=envs[0],
            dataset_name=", ".join(envs),
            dataset_split=split if "after" in figures else "validation",
            metric_type=name,
            metric_value=round(measured[name]["value"], 4),
        )
        for name in _HEADLINES
        if name in measured
    ]


def _rows(figures: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Metric, then its value and interval each time it was measured."""
    names = [name for name in _HEADLINES if any(name in one for one in figures.values())]
    return [[name, *(_cell(one.get(name)) for one in figures.values())] for name in names]


def _cell(metric: Mapping[str, Any] | None) -> str:
    if metric is None:
        return "not measured"
    value = f"{metric['value']:.3f}"
    if "low" not in metric or metric["low"] == metric["high"]:
        return value
    return f"{value} [{metric['low']:.3f}, {metric['high']:.3f}]"


def _facts(source: Source) -> dict[str, str]:
    """What the weights were made with, for the table of the card."""
    config, provenance = source.config, source.provenance
    rollout, machine = config.rollout, provenance.get("machine", {})
    steps = source.step if source.step is not None else source.run.summary.get("steps", "")
    plugins = (
        " ".join(filter(None, (one["plugin"], one["version"], (one.get("sha256") or "")[:12])))
        for one in provenance.get("plugins", ())
        if one.get("origin") != "builtin"
    )
    commit = (provenance.get("commit") or {}).get("searchrl")
    versions = provenance.get("versions", {})
    facts = {
        "algorithm": config.algorithm.name,
        "steps": str(steps),
        "rollouts per step": f"{rollout.prompts_per_step} × {rollout.group_size}",
        "learning rate": f"{config.optim.lr:g}",
        "sampling temperature": f"{rollout.temperature:g}",
        "seed": str(config.seed),
        "hardware": machine.get("gpu") or machine.get("cpu") or "",
        "duration": _duration(provenance.get("duration_s")),
        "versions": ", ".join(
            f"{name} {versions[name]}"
            for name in ("searchrl", "torch", "transformers", "peft")
            if versions.get(name)
        ),
        "commit of SearchRL": commit or "",
        "plugins": ", ".join(plugins),
        "fingerprint of the configuration": config.fingerprint,
    }
    return {name: value for name, value in facts.items() if value}


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{max(1, minutes)} min"
