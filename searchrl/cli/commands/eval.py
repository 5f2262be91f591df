"""`searchrl eval`: a model, a run, an endpoint or a scripted policy on held-out tasks.

Owns the choice of configuration (a run's own, or a plan) and the order in which things are said.
Only a model of our own needs torch. The evaluation itself is `searchrl.evaluate`, the table
`cli.screen.evaluated`.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli.json_output import print_json
from searchrl.cli.options import (
    EVAL,
    SHARED,
    GroupedCommand,
    Layers,
    is_of_run,
    options,
    read_layers,
)
from searchrl.config.endpoint import endpoint_address
from searchrl.config.policy import MODEL
from searchrl.errors import RunFolderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from searchrl.config import RunConfig
    from searchrl.contracts import Paired
    from searchrl.engine.figures.evaluation import EvalResult
    from searchrl.plugins import Registry
    from searchrl.results.contender import Contender
    from searchrl.run_folder import Run


@click.command("eval", cls=GroupedCommand)
@click.argument("run", required=False)
@options(SHARED, EVAL)
def eval(run: str | None, **values: Any) -> None:
    """Evaluate a model, an endpoint or a scripted policy on held-out tasks.

    Greedy, on the first --num-tasks tasks of the split; every figure has a 95 % interval. RUN is a
    run folder or a checkpoint in one: its policy and the run's own configuration are used, and
    flags replace parts of it. --against plays another policy on the same tasks and tests the
    difference.

    \b
    Examples:
      searchrl eval --env regulations --policy scripted
      searchrl eval --env regulations --model tiny --json
      searchrl eval runs/mine --retriever random
      searchrl eval runs/mine --against tiny
      searchrl eval --policy endpoint:http://localhost:8000/v1 --model NAME
    """
    from searchrl.cli.loading import load_registry
    from searchrl.cli.screen.console import ConsoleObserver, make_console
    from searchrl.cli.screen.next_command import show_next
    from searchrl.endpoints.exchange import describe_traffic
    from searchrl.engine.figures.breakdown import task_means
    from searchrl.programs.evaluate import play_table
    from searchrl.results.browsecomp import ensure_new, write_browsecomp
    from searchrl.results.contender import find_contender
    from searchrl.results.paired import compare
    from searchrl.run_folder import Run, choose_folder

    began = time.monotonic()
    exported = None if values["browsecomp"] is None else Path(values["browsecomp"])
    with ConsoleObserver(make_console(sys.stderr)) as observer:
        first = _resolve(run, read_layers(values, SHARED, EVAL))
        if first.config.run_dir is not None:
            choose_folder(first.config)
        if exported is not None:
            ensure_new(exported)
        is_own_model = first.config.policy.name == MODEL and not values["model"]
        if run is None and is_own_model and is_of_run(values["config"] or ""):
            folder = Path(values["config"]).parent
            observer.note(
                f"{values['config']} says what that run began with, so the model it began with is "
                f"evaluated; the one it trained: searchrl eval {shlex.quote(str(folder))}"
            )
        found = Run.find(run) if run is not None else None
        registry = load_registry(first.config, None if found is None else found.path)
        first = first.settled(registry, observer.note)
        both = [first]
        if values["against"] is not None:
            both.append(find_contender(values["against"], first.config, registry, observer.note))
        try:
            results = [
                play_table(one.config, registry, observer.phase, one.plan, observer.note)
                for one in both
            ]
        except KeyboardInterrupt as error:
            error.args = (_way_on(first.config),)
            observer.last_words(f"stopped: {error}")
            raise
        if results[0].traffic is not None:
            observer.note(f"endpoint: {describe_traffic(results[0].traffic)}")
        _keep(first.config, registry, results, began, observer.note)
        if exported is not None:
            number = write_browsecomp(exported, results[0].rollouts, first.model)
            observer.note(f"{number} episodes as a run of BrowseComp-Plus: {exported}")
    compared = compare(*(task_means(one.rollouts) for one in results)) if results[1:] else {}
    following = _following(run, values, first.config, registry, results[0])
    if values["json"]:
        print_json(_as_json(both, results, compared))
        show_next(observer.console, following)
        return
    _show(both, results, compared, values["show"] or 0)
    show_next(make_console(sys.stdout), following)


def _resolve(run: str | None, layers: Layers) -> Contender:
    """The resolved config, and its plan if a model needed one (that needs torch)."""
    from searchrl.config import build_config
    from searchrl.programs.agent import run_settings
    from searchrl.programs.evaluate import needs_model
    from searchrl.results.contender import Contender
    from searchrl.run_folder import Run

    if run is not None:
        found = Run.find(run) or _open(run)
        config = build_config(run_settings(found, run), *layers)
        if not needs_model(config.policy.name):
            return Contender(config)
        from searchrl.programs.setup.planning import Plan

        return Contender(config, Plan.of(config))
    config = build_config(*layers)
    if not needs_model(config.policy.name):
        return Contender(config)
    from searchrl.programs.setup.planning import plan_run

    plan = plan_run(*layers)
    return Contender(plan.config, plan)


def _open(run: str) -> Run:
    """A run folder, or the error: a newcomer may have meant a model."""
    from searchrl.run_folder import Run, suggest_runs

    try:
        return Run.open(run)
    except RunFolderError as error:
        if suggest_runs(run):
            raise
        raise RunFolderError(
            f"{error} RUN is a run folder; a model is named by a flag: "
            f"searchrl eval --model {shlex.quote(run)}"
        ) from None


def _way_on(config: RunConfig) -> str:
    """What is left of an evaluation that was stopped."""
    if endpoint_address(config.policy.name) is not None and config.endpoint.has_cache:
        return "the replies so far are kept; run the command again, and it goes on from there"
    return "an evaluation records nothing before its end; run the command again"


def _keep(
    config: RunConfig,
    registry: Registry,
    results: list[EvalResult],
    began: float,
    note: Callable[[str], None],
) -> None:
    """Record the episodes, if a folder was given, and refuse figures of too few of them."""
    from searchrl.cli.recording import record_episodes
    from searchrl.engine.figures.failures import FailureLimit
    from searchrl.engine.figures.remarks import find_remarks
    from searchrl.run_folder import RunWriter, save_beside

    result, *others = results
    for text in find_remarks(result.rollouts):
        note(text)
    facts = {} if result.traffic is None else {"endpoint": asdict(result.traffic)}
    more = {"eval_forced": result.forced}
    for other in others:
        more |= {"eval_against": other.rollouts, "eval_against_forced": other.forced}
    # Recorded before the limit is checked: the episodes are kept in any case.
    record_episodes(
        config, registry, "eval", result.rollouts, result.metrics, began=began, more=more, **facts
    )
    limit = FailureLimit(
        "evaluation",
        config.rollout.max_failure_frac,
        RunWriter(Path(config.run_dir)).write_failure if config.run_dir else save_beside,
        note,
    )
    for name, one in zip(("eval", "eval_against"), results, strict=False):
        limit.ensure((*one.rollouts, *one.forced), f"split '{config.eval.split}'", name)


def _following(
    run: str | None,
    values: Mapping[str, Any],
    config: RunConfig,
    registry: Registry,
    result: EvalResult,
) -> str:
    """What to type next."""
    from searchrl.cli.screen.next_command import REWARD, after_eval, after_eval_of_run
    from searchrl.programs.agent import takes_questions

    if run is not None:
        can_ask = bool(result.rollouts) and takes_questions(result.rollouts[0].world)
        return after_eval_of_run(values, run, takes_questions=can_ask)
    reward = REWARD if "reward" in result.metrics else "env"
    if endpoint_address(config.policy.name) is not None:
        # It has no weights here, and nothing else asks it.
        rest = tuple(one for one in values["set"] if not one.strip().startswith("endpoint."))
        values = {**values, "model": None, "set": rest}
    return after_eval(values, config, registry, reward)


def _as_json(
    both: list[Contender], results: list[EvalResult], compared: Mapping[str, Paired]
) -> dict[str, Any]:
    """The figures by name; with `--against`, also those of the other and the differences."""
    from searchrl.engine.figures.breakdown import shown_metrics

    tables = []
    for result in results:
        worlds = {id(rollout.world): rollout.world for rollout in result.rollouts}
        tables.append(shown_metrics(result.metrics, worlds.values()))
    if not results[1:]:
        return dict(tables[0])
    return tables[0] | {"against": {"policy": both[1].name, **tables[1]}, "paired": compared}


def _show(
    both: list[Contender], results: list[EvalResult], compared: Mapping[str, Paired], num: int
) -> None:
    from searchrl.cli.screen.console import make_console
    from searchrl.cli.screen.evaluated import show_paired, show_table
    from searchrl.cli.screen.transcript import render_rollout
    from searchrl.engine.episodes.records import rollout_record

    console, config = make_console(sys.stdout), both[0].config
    for rollout in results[0].rollouts[:num]:
        row = rollout_record(rollout, "eval", None)
        console.print(render_rollout("episode", row), "")
    envs = ", ".join(task.env.name for task in config.tasks)
    names = [one.name for one in both]
    console.print(f"{' against '.join(names)} on {envs}, split {config.eval.split}")
    heads = ["value"] if len(both) == 1 else ["first", "second"]
    show_table(console, dict(zip(heads, (one.metrics for one in results), strict=True)))
    if compared:
        show_paired(console, names, compared)
