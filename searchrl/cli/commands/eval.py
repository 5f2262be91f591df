"""`searchrl eval`: a model, a run, an endpoint or a scripted policy on held-out tasks."""

from __future__ import annotations

import functools
import shlex
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.config.endpoint import endpoint_address
from searchrl.errors import ConfigError, FailureLimitError, RunFolderError
from searchrl.screen.lines import print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from searchrl.config import RunConfig
    from searchrl.contracts import Paired
    from searchrl.engine.metrics.evaluation import EvalResult
    from searchrl.plugins import Registry
    from searchrl.run_folder import Run
    from searchrl.runs.contender import Contender

_NAMES = ("eval", "eval_against")
"""The phases of the two policies in a run folder."""


@click.command("eval", cls=Command)
@click.argument("run", required=False)
@option("--num-tasks", "Tasks to evaluate on: the first N.", key="eval.num_tasks", type=int)
@option("--samples K", "Episodes per task, for pass@k and avg@k.", key="eval.num_samples", type=int)
@option("--temperature X", "0 is greedy.", key="eval.temperature", type=float)
@option("--against POLICY", "Another policy on the same tasks: RUN, MODEL or scripted:NAME.")
@option(
    "--forced/--no-forced",
    "Evaluate a second time, where the first turn must search.",
    key="eval.forced",
    default=None,
)
@options.AGENT
@options.SHARED
@options.SPLIT
@options.REWARD
@options.MODEL_NAME
@options.POLICY
@options.DEVICE
@options.RUN_DIR
@option(
    "--show N",
    "Print the first N episodes as well.",
    type=click.IntRange(min=0),
    default=0,
    group=options.OUTPUT,
)
@options.DETAILS
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
    from searchrl.engine.metrics.breakdown import task_means
    from searchrl.engine.metrics.evaluation import EvalResult
    from searchrl.engine.metrics.failures import FailureLimit
    from searchrl.engine.metrics.remarks import find_forks, find_remarks
    from searchrl.programs.evaluate import play_table, resolve
    from searchrl.programs.stopping import catching_signals
    from searchrl.retrieval.recorded import begin_counting
    from searchrl.run_folder import choose_folder, save_beside
    from searchrl.runs.contender import Contender, find_contender
    from searchrl.screen.console import ConsoleObserver, make_console
    from searchrl.statistics import compare

    began = time.monotonic()
    begin_counting()
    with ConsoleObserver(make_console(sys.stderr)) as observer, catching_signals() as stop:
        opened = None if run is None else open_run(run)
        # The config, and its plan if a model needed one (that needs torch).
        first = Contender(*resolve(*read_layers(), run=opened, weights=run))
        if first.config.run_dir is not None:
            choose_folder(first.config)
        registry = load_registry(first.config, None if opened is None else opened.path)
        first = first.settled(registry, observer.note)
        both = [first]
        if values["against"] is not None:
            both.append(find_contender(values["against"], first.config, registry, observer.note))
        config, results = first.config, list[EvalResult]()
        save: Callable[[str, str], Path] = save_beside
        record = functools.partial(record_results, config, registry, results, began, observer.note)
        try:
            for one in both:
                results.append(
                    play_table(one.config, registry, observer.phase, one.plan, observer.note, stop)
                )
                if stop.is_requested:
                    raise KeyboardInterrupt
        except (KeyboardInterrupt, Exception) as error:
            is_stopped = isinstance(error, KeyboardInterrupt)
            if not isinstance(error, ConfigError) and config.run_dir is not None:
                save = record(is_over=False)
                save("eval", "".join(traceback.format_exception(error)))
            if is_stopped:
                kept = f"what was finished is in {config.run_dir}" if config.run_dir else ""
                if endpoint_address(config.policy) and config.endpoint.has_cache:
                    kept = "the replies so far are kept"
                error.args = (f"{kept or 'nothing is kept'}; run the command again",)
                observer.last_words(f"stopped: {error}")
            raise
        if results[0].traffic is not None:
            observer.note(f"endpoint: {results[0].traffic.describe()}")
        if config.run_dir is not None:  # whatever follows: the episodes are kept
            save = record(is_over=True)
        most, where = config.rollout.max_failure_frac, f"split '{config.eval.split}'"
        limit = FailureLimit("evaluation", most, save, observer.note)
        for name, result in zip(_NAMES, results, strict=False):
            limit.ensure((*result.rollouts, *result.forced), where, name)
        for text in (*find_remarks(results[0].rollouts), *find_forks(results[0].rollouts)):
            observer.note(text)
    compared = compare(*(task_means(one.rollouts) for one in results)) if results[1:] else {}
    if values["json"]:
        shown: dict[str, Any] = dict(results[0].metrics)
        for other in results[1:]:
            shown |= {"against": {"policy": both[1].name, **other.metrics}, "paired": compared}
        print_json(shown)
    else:
        _show(both, results, compared, values)
    if all(any(rollout.is_scored for rollout in result.rollouts) for result in results):
        return
    try:
        for result in results:
            limit.ensure_scored(result.rollouts, where)
    except FailureLimitError as error:  # no limit was passed: a figure is missing
        say(f"Error: {error}", err=True)
    raise SystemExit(1)


def open_run(run: str, command: str = "eval") -> Run:
    """Open a run folder, or the one of a checkpoint; RunFolderError says how a model is named."""
    from searchrl.run_folder import Run

    try:
        return Run.find(run) or Run.open(run)
    except RunFolderError as error:
        way = f"a model is named by a flag: searchrl {command} --model {shlex.quote(run)}"
        raise RunFolderError(f"{error} RUN is a run folder; {way}") from None


def record_results(
    config: RunConfig,
    registry: Registry,
    results: Sequence[EvalResult],
    began: float,
    note: Callable[[str], None],
    *,
    is_over: bool,
    phases: Sequence[str] = _NAMES,
) -> Callable[[str, str], Path]:
    """Write the run folder, with the figures of the first result if the evaluation `is_over`.

    Returns what writes a failure into it.
    """
    from searchrl.engine.metrics.metrics import find_headline
    from searchrl.engine.rollout.records import rollout_record
    from searchrl.retrieval.recorded import count_searches
    from searchrl.run_folder import RunWriter, holding
    from searchrl.trust.permission import trust_created

    folder = Path(str(config.run_dir))
    with holding(folder):
        writer = RunWriter.create(config, folder, time.monotonic() - began)
        traffic = [asdict(one.traffic) for one in results[:1] if one.traffic is not None]
        writer.write_provenance(
            registry.provenance(),
            program="eval",
            seed=config.seed,
            fingerprint=config.fingerprint,
            **({"endpoint": traffic[0]} if traffic else {}),
        )
        if text := trust_created(config, registry, writer.path):
            note(f"warning: {text}")
        for name, one in zip(phases, results, strict=False):
            for phase, played in ((name, one.rollouts), (f"{name}_forced", one.forced)):
                if played:
                    rows = (rollout_record(r, phase, {}) for r in played)
                    writer.write_rollouts(phase, rows, compress=config.log.compress)
        if is_over:
            metrics = results[0].metrics
            writer.log(0, metrics, "eval")
            headline = find_headline(rollout.world for rollout in results[0].rollouts)
            searches = count_searches({})
            kept = {"searches": searches} if searches else {}
            writer.write_summary({"headline": headline, "eval": metrics, **kept})
    return writer.write_failure


def _show(
    both: list[Contender],
    results: list[EvalResult],
    compared: Mapping[str, Paired],
    values: Mapping[str, Any],
) -> None:
    from searchrl.engine.rollout.records import rollout_record
    from searchrl.screen.figures import chosen_keys, format_metric, make_table
    from searchrl.screen.terminal import make_console
    from searchrl.screen.transcript import render_rollout

    console, config = make_console(sys.stdout), both[0].config
    for rollout in results[0].rollouts[: values["show"]]:
        console.print(render_rollout("episode", rollout_record(rollout, "eval", {})), "")
    envs = ", ".join(task.env.name for task in config.tasks)
    names = [one.name for one in both]
    console.print(f"{' against '.join(names)} on {envs}, split {config.eval.split}")
    measured = [one.metrics for one in results]

    heads = ["value"] if len(both) == 1 else ["first", "second"]
    heads = [f"{head}\n[95 % interval]" for head in heads]
    rows = {}
    for key in chosen_keys(measured, details=values["details"]):
        counts = sorted({one[key]["n"] for one in measured if key in one})
        cells = [format_metric(key, one) for one in measured]
        rows[key] = [*cells, " / ".join(map(str, counts))]
    console.print(make_table("metric", [*heads, "n"], rows))
    if not compared:
        return
    rows = {
        key: [format_metric(key, compared), f"{one['p']:.2g}", one["test"], str(one["n"])]
        for key, one in compared.items()
    }
    console.print("", f"{names[0]} minus {names[1]}, task by task", sep="\n")
    console.print(make_table("metric", ["difference [95 %]", "p", "test", "tasks"], rows))
