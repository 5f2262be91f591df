"""`searchrl apo`: the options, the run folder and the end on test tasks."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from searchrl import (
    BudgetSpent,
    ConfigError,
    Run,
    RunWriter,
    choose_folder,
    compare,
    holding,
    open_player,
    parse_sets,
    replace_file,
    rollout_record,
    show_value,
)
from searchrl.data import Problems, read_text
from searchrl_apo.editors import ASSETS, ENDPOINT, OFFLINE, ModelEditor, OfflineEditor, make_ask
from searchrl_apo.evaluation import VALIDATION, Candidate, Evaluator
from searchrl_apo.journal import Journal
from searchrl_apo.search import Plan

_OPTIMIZERS = {"apo": "searchrl_apo.search", "gepa": "searchrl_apo.gepa_bridge"}
_KEYS = {"env": "env", "policy": "policy", "model": "model.name", "run_dir": "run_dir"}


@click.command("apo")
@click.option("--env", metavar="NAME", help="Environment, by registered name.")
@click.option("--policy", metavar="POLICY", help="RUN, scripted:NAME or endpoint:URL.")
@click.option("--model", metavar="MODEL", help="A model, or its name at the endpoint.")
@click.option("--budget", default=2000, show_default=True, help="Episodes, those of the end too.")
@click.option("--optimizer", type=click.Choice([*_OPTIMIZERS]), default="apo", show_default=True)
@click.option("--editor", default=OFFLINE, show_default=True, help="Or endpoint:URL, RUN, MODEL.")
@click.option("--sentences", metavar="FILE", help="Sentences of the offline editor, one a line.")
@click.option("--set", "sets", multiple=True, metavar="K=V", help="Any key, and editor.KEY.")
@click.option("--plugin", "plugins", multiple=True, metavar="FILE", help="A plugin.")
@click.option("--run-dir", metavar="DIR", help="Folder for what is written; new or empty.")
@click.option("--resume", metavar="RUN", help="Continue a run, with the options it began with.")
@click.option("--dry-run", is_flag=True, help="Print the plan and stop.")
def apo(**given: Any) -> None:
    """Improve the protocol's instruction on training tasks.

    Validation tasks choose among edits; test tasks are played once, at the end, with the first and
    the best instruction. The best one is in instruction.txt of the run folder.

    \b
    Examples:
      searchrl apo --env regulations --policy runs/mine
      searchrl apo --policy runs/mine --editor endpoint:URL --set editor.model=NAME
    """
    settings, of_editor = _read_settings(given)
    lines = _read_sentences(given["sentences"])
    with open_player(settings) as player:
        plan = Plan.of(player, given["budget"], given["editor"])
        click.echo(plan.describe())
        limits = player.config.endpoint.max_tokens, of_editor.get("max_tokens")
        named = {"endpoint": player.config.policy, "editor": given["editor"]}
        for (section, part), limit in zip(named.items(), limits, strict=True):
            if part.startswith(ENDPOINT):
                told = f"no limit is set: give one with --set {section}.max_tokens=N"
                click.echo(f"tokens ({section}): {told if limit is None else f'at most {limit}'}")
        if given["dry_run"]:
            return
        every, is_offline = range(plan.num_validation), given["editor"] == OFFLINE
        ask = None if is_offline else make_ask(given["editor"], of_editor, settings["plugins"])
        resume = given["resume"] and Run.open(given["resume"])
        folder = resume.path if resume else choose_folder(player.config)
        facts = {name: given[name] for name in ("optimizer", "editor", "budget")}
        facts |= {f"editor.{key}": of_editor.get(key) for key in ("model", "api", "extra")}
        facts |= player.config.to_dict() | {"instruction": plan.first, "sentences": lines}
        del facts["run_dir"], facts["endpoint"]  # these may be others when it is continued
        try:
            search = importlib.import_module(_OPTIMIZERS[given["optimizer"]]).search
        except ModuleNotFoundError as error:
            raise ConfigError("--optimizer gepa: pip install 'searchrl-apo[gepa]'") from error
        try:
            with holding(folder):
                writer = _reopen(resume, facts) if resume else _create(player, folder, facts)
                evaluator = Evaluator(plan.first, player, Journal(folder), plan.budget)
                editor: Any = ask and ModelEditor(ask, evaluator, plan.num_train)
                editor = editor or OfflineEditor(lines, evaluator)

                def tell(leader: Candidate, best: Candidate) -> None:
                    _keep(evaluator, folder, best)
                    means = [evaluator.score(one, VALIDATION, every) for one in (leader, best)]
                    told = f"leader {leader.id} {means[0]:.3f}, best {best.id} {means[1]:.3f}"
                    counts = (f"{count} {why}" for why, count in evaluator.dropped.items())
                    told += f"; edits dropped: {', '.join(counts) or 'none'}"
                    click.echo(f"{evaluator.num_episodes:,} episodes: {told}")

                best = search(evaluator, editor, plan, tell)
                _finish(player.config, plan, evaluator, best, writer)
        except (KeyboardInterrupt, BudgetSpent) as error:
            told = f"{str(error) or 'stopped'}; go on with the same options and --resume {folder}"
            error.args = (told,)  # with a text, no other one is shown
            click.echo(told, err=True)
            raise


def _read_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the player, and those of the section `editor`."""
    named = {key: given[name] for name, key in _KEYS.items() if given[name] is not None}
    if given["policy"] and Path(given["policy"]).is_dir():
        named["init_from"] = str(Path(named.pop("policy")).resolve())
    written = [f"{key}={json.dumps(value)}" for key, value in named.items()]
    settings = parse_sets([*written, *given["sets"]])
    if settings.get("env") == {"name": given["env"]}:
        settings["env"] = given["env"]  # its name alone: the rest may come from the policy's run
    of_editor = settings.pop("editor", {})
    if of_editor and not (isinstance(of_editor, dict) and given["editor"].startswith(ENDPOINT)):
        way_on = "only --editor endpoint:URL takes --set editor.KEY=VALUE"
        raise ConfigError(f"--set editor = {show_value(of_editor)}: {way_on}")
    before = click.get_current_context().find_root().params.get("plugin") or ()
    paths = [str(Path(p).resolve()) if Path(p).is_file() else p for p in given["plugins"]]
    return settings | {"plugins": [*settings.get("plugins", ()), *before, *paths]}, of_editor


def _read_sentences(path: str | None) -> list[list[str]]:
    """The wordings of each line of a list, with a `|` between them."""
    problems = Problems()
    file = Path(path) if path else ASSETS / "sentences.txt"
    text = read_text(file, problems, "list of sentences, one a line (.txt)")
    if text is not None and not text.strip():
        problems.add(file, 0, "it holds no sentence; expected one a line")
    problems.ensure_none()
    lines = ([part.strip() for part in line.split("|")] for line in (text or "").splitlines())
    return [parts for line in lines if (parts := [part for part in line if part])]


def _create(player: Any, folder: Path, facts: Mapping[str, Any]) -> RunWriter:
    writer = RunWriter.create(player.config, folder)
    writer.write_provenance(player.registry.provenance(), program="apo", apo=facts)
    Journal(folder).put({})  # by this file the folder is known as one that can go on
    return writer


def _reopen(run: Run, facts: Mapping[str, Any]) -> RunWriter:
    """Go on with a run; ConfigError if it is finished, or began with other settings."""
    known = run.provenance.get("apo", {})
    if changed := [key for key in facts if facts[key] != known.get(key)]:
        told = f"'{changed[0]}' is not what it began with: {run.provenance.get('command')}"
        raise ConfigError(f"--resume {run.path}: {told}")
    if run.summary:
        raise ConfigError(f"--resume {run.path}: it is finished; begin a new run with --run-dir")
    return RunWriter.reopen(run.path, 0, on_note=click.echo)


def _keep(evaluator: Evaluator, folder: Path, best: Candidate) -> None:
    """Write the tree of candidates, and the best instruction so far."""
    nodes = [one.to_node() for one in evaluator.candidates]
    tree = {"best": best.id, "dropped": evaluator.dropped, "nodes": nodes}
    replace_file(folder / "candidates.json", json.dumps(tree, indent=1).encode())
    replace_file(folder / "instruction.txt", f"{best.text}\n".encode("utf-8", "replace"))


def _finish(
    config: Any, plan: Plan, evaluator: Evaluator, best: Candidate, writer: RunWriter
) -> None:
    """Play the test tasks with the first and the best instruction, once, and write the end."""
    split, tasks, first = config.eval.split, range(plan.num_test), evaluator.candidates[0]
    phases, journal = {"before": first, "after": best}, evaluator.journal
    for one in dict.fromkeys(phases.values()):
        if (key := f"{one.id} {split}") not in journal:
            result = evaluator.play(one.text, split, tasks)
            for phase in (name for name in phases if phases[name] is one):
                rows = [rollout_record(rollout, phase, {}) for rollout in result.rollouts]
                writer.write_rollouts(f"eval_{phase}", rows, compress=config.log.compress)
            journal.put({key: [dict(result.metrics), _figures(result)]})
        rewards = journal[key][1]["reward"]
        one.rewards |= {(split, int(task)): reward for task, reward in rewards.items()}
    _keep(evaluator, writer.path, best)
    results = {phase: journal[f"{one.id} {split}"] for phase, one in phases.items()}
    measured = {phase: metrics for phase, (metrics, _) in results.items()}
    paired = compare(results["after"][1], results["before"][1])
    writer.write_summary({**measured, "paired": paired, "best": best.id})
    click.echo(f"{plan.num_test} tasks of split '{split}', {first.id} → {best.id}")
    for name, change in paired.items():
        before, after = (measured[phase][name]["value"] for phase in results)
        ends = " [{low:+.3f}, {high:+.3f}]" if "low" in change else ""
        told = f"{{value:+.3f}}{ends}, p {{p:.2g}}".format(**change)
        click.echo(f"  {name} {before:.3f} → {after:.3f}, difference {told}")
    click.echo(f"use it: --set protocol.instruction=@{writer.path / 'instruction.txt'}")


def _figures(result: Any) -> dict[str, dict[str, float]]:
    """Reward and exact match by the number of the task."""
    listed = enumerate(result.rollouts)
    scored = {str(task): one for task, one in listed if one.reward is not None}
    ems = {task: one.scored.scores.get("em") for task, one in scored.items()}
    rewards = {task: one.reward for task, one in scored.items()}
    return {"reward": rewards, "em": {task: em for task, em in ems.items() if em is not None}}
