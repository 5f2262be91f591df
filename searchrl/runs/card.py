"""The model card of a policy, from its run. Its words are in `assets/model_card.md.jinja`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from searchrl.engine.rollout.worlds import name_defaults
from searchrl.plugins import Registry
from searchrl.runs.source import Source
from searchrl.trust.texts import clean

TEMPLATE = Path(__file__).resolve().parents[1] / "assets" / "model_card.md.jinja"

_HEADLINES = ("reward", "em", "cover_em", "f1", "env", "searches", "passive", "support_recall")
"""The metrics that a card shows, where they were measured."""

_TIMES = {"before": "before training", "after": "after training", "during": "this checkpoint"}


def is_hub_id(name: str) -> bool:
    """True for `user/model`, as names of a hub are."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


Kind = Literal["adapter", "merged", "whole"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An export. `base` is the adapter's as others know it; `repo` is where it is uploaded to."""

    path: Path
    kind: Kind
    base: str | None
    repo: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its repository or folder."""
        return Path(self.repo or self.path.resolve()).name

    @property
    def is_complete(self) -> bool:
        """True if everything it needs is in it or on a hub."""
        return self.kind != "adapter" or is_hub_id(self.base or "")

    def to_dict(self) -> dict[str, Any]:
        """The export as JSON."""
        files = sorted(path for path in self.path.rglob("*") if path.is_file())
        sizes = {file.relative_to(self.path).as_posix(): file.stat().st_size for file in files}
        facts = {"path": str(self.path), "kind": self.kind, "base": self.base}
        return {**facts, "files": sizes, "notes": list(self.notes)}


def make_card(source: Source, weights: Exported, registry: Registry) -> str:
    """The text of a model card, its header included."""
    config, figures = name_defaults(source.run.config, registry), source.figures
    task = config.tasks[0]
    protocol = registry.make_protocol(
        registry.get("env", task.env.name), task.protocol.name, task.protocol.settings
    )
    stages = [task.reward] if isinstance(task.reward, str) else list(task.reward.values())
    envs = [one.env.name for one in config.tasks]
    hub_base = weights.base if is_hub_id(weights.base or "") else None
    header = ModelCardData(
        base_model=hub_base,
        library_name="peft" if weights.kind == "adapter" else "transformers",
        pipeline_tag="text-generation",
        tags=["searchrl", "reinforcement-learning", "search-agent", config.algorithm.name],
        model_name=weights.name,
    )
    longest = max(map(len, re.findall("`+", protocol.instruction)), default=0)
    names = [name for name in _HEADLINES if any(name in one for one in figures.values())]
    card = ModelCard.from_template(
        header,
        str(TEMPLATE),
        # What a run says is text: no markup, no code of the snippets, no end of a block.
        plain=_plain,
        code=lambda value: " ".join(clean(str(value)).split()).replace("`", "'"),
        literal=json.dumps,
        shell=shlex.quote,
        weights=weights,
        hub_base=hub_base,
        envs=envs,
        step=source.step,
        split=config.eval.split,
        program=source.run.provenance.get("program") or "train",
        times=[_TIMES[time] for time in figures],
        rows=[[name, *(_cell(one.get(name)) for one in figures.values())] for name in names],
        temperature=config.eval.temperature,
        num_tasks=max((m["n"] for one in figures.values() for m in one.values()), default=0),
        protocol_name=task.protocol.name,
        stops=list(protocol.stops),
        wrapper=task.wrapper and {"name": task.wrapper.name, **task.wrapper.settings},
        instruction=clean(protocol.instruction) if config.model.instructions else "",
        fence="`" * max(4, longest + 1),
        reward=", then ".join(stages),
        facts=_facts(source),
    )
    return f"{str(card).strip()}\n"


def _plain(value: Any) -> str:
    """Text of one line that Markdown and HTML take for nothing else."""
    text = " ".join(clean(str(value)).split())
    return re.sub(r"[\\`*\[\]|]", r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;"))


def _cell(metric: Mapping[str, Any] | None) -> str:
    if metric is None:
        return "not measured"
    value = f"{metric['value']:.3f}"
    if "low" not in metric or metric["low"] == metric["high"]:
        return value
    return f"{value} [{metric['low']:.3f}, {metric['high']:.3f}]"


def _facts(source: Source) -> dict[str, str]:
    config, provenance = source.run.config, source.run.provenance
    rollout, machine = config.rollout, provenance.get("machine", {})
    steps = source.step if source.step is not None else source.run.summary.get("steps", "")
    plugins = (
        " ".join(filter(None, (one["plugin"], one["version"], (one.get("sha256") or "")[:12])))
        for one in provenance.get("plugins", ())
        if one.get("origin") != "builtin"
    )
    versions = provenance.get("versions", {})
    programs = ("searchrl", "torch", "transformers", "peft")
    hours, minutes = divmod(max(1, round((provenance.get("duration_s") or 0.0) / 60)), 60)
    return {
        "algorithm": config.algorithm.name,
        "steps": str(steps),
        "rollouts per step": f"{rollout.prompts_per_step} × {rollout.group_size}",
        "learning rate": f"{config.optim.lr:g}",
        "sampling temperature": f"{rollout.temperature:g}",
        "seed": str(config.seed),
        "hardware": machine.get("gpu") or machine.get("cpu") or "",
        "duration": f"{hours} h {minutes} min" if hours else f"{minutes} min",
        "versions": ", ".join(f"{n} {versions[n]}" for n in programs if versions.get(n)),
        "plugins": ", ".join(plugins),
    }
