"""`searchrl evidence`: the same tasks with other passages, and what that does to the answers."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.commands.eval import open_run, record_results
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json


@click.command(cls=Command)
@click.argument("run", required=False)
@option("--num-tasks", "Tasks to play: the first N.", key="eval.num_tasks", type=int)
@options.SHARED
@options.SPLIT
@options.MODEL_NAME
@options.POLICY
@options.DEVICE
@options.RUN_DIR
def evidence(run: str | None, **values: Any) -> None:
    """Play tasks again with other passages: do answers rest on what was read?

    Every task is played greedily: as it is, with another value in place of the gold one in every
    passage, with passages of another question, with none, and without the model's earlier thoughts.
    An answer follows the changed value, sticks to the gold one, gives up, or is another one. RUN is
    a run folder or a checkpoint in one; nothing is written there.

    \b
    Examples:
      searchrl evidence runs/mine
      searchrl evidence --env regulations --model tiny --num-tasks 100
      searchrl evidence --env regulations --policy scripted:two_search_regex --json
    """
    from searchrl.cli.loading import load_registry
    from searchrl.engine.metrics.failures import FailureLimit
    from searchrl.programs.evaluate import open_player, resolve
    from searchrl.programs.evidence import OUTCOMES, measure_changed, play_changed
    from searchrl.run_folder import choose_folder, save_beside
    from searchrl.runs.contender import Contender
    from searchrl.screen.console import ConsoleObserver, make_console
    from searchrl.screen.figures import format_metric, make_table

    began = time.monotonic()
    with ConsoleObserver(make_console(sys.stderr)) as observer:
        opened = None if run is None else open_run(run, "evidence")
        greedy = {"eval": {"temperature": 0.0}}
        first = Contender(*resolve(*read_layers(), greedy, run=opened, weights=run))
        if first.config.run_dir is not None:
            choose_folder(first.config)
        registry = load_registry(first.config, None if opened is None else opened.path)
        first = first.settled(registry, observer.note)
        config = first.config
        with open_player(config, registry) as player:
            results = play_changed(player, observer.phase)
        if config.run_dir is not None:
            _, *changes = results
            phases, made = ["eval", *(f"evidence_{one}" for one in changes)], [*results.values()]
            note = observer.note
            record_results(config, registry, made, began, note, is_over=True, phases=phases)
        most, where = config.rollout.max_failure_frac, f"split '{config.eval.split}'"
        limit = FailureLimit("evidence", most, save_beside, observer.note)
        for name, result in results.items():
            limit.ensure(result.rollouts, f"{where}, {name}", "evidence")
        measured = measure_changed(results, config.normalization)
    if values["json"]:
        print_json(measured)
        return
    console = make_console(sys.stdout)
    counts = f"{measured['num_changed']} of {measured['num_tasks']} tasks have a value to change"
    shown = format_metric("shown", measured)
    console.print(f"{first.name}, {where}: {counts}; it was shown in {shown} of these")
    shares = {**measured["outcomes"], "value, if shown": measured["if_shown"]}
    for head, table in (("share of tasks", shares), ("minus as_is", measured["paired"])):
        rows = {name: [format_metric(key, one) for key in OUTCOMES] for name, one in table.items()}
        console.print("", make_table(head, OUTCOMES, rows), sep="\n")
