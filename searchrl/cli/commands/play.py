"""`searchrl play`: a person as the policy. No torch."""

from __future__ import annotations

import sys
from typing import Any

import click

from searchrl.cli import options
from searchrl.cli.options import Command, option, read_layers
from searchrl.screen.lines import print_json, say

_HELP = (
    "Write a turn as the model would, or use a shortcut:  {}.  A turn you write yourself ends with "
    "its closing tag or an empty line; quit leaves."
)


@click.command(cls=Command)
@option("--index N", "Number of the task; by default any, or drawn from --seed.", type=int)
@options.SHARED
@options.SPLIT
@options.REWARD
def play(**values: Any) -> None:
    """Play an environment yourself: you are the policy.

    You see exactly what a model sees and get its scores at the end. `s words` searches, `a words`
    answers, `c tool {json}` calls a tool, `d words` acts, `quit` leaves. Every game is another
    task, unless --index or --seed chooses one. Turns may also be piped in.

    \b
    Examples:
      searchrl play --env regulations
      printf 's library hours\\na 16:45\\n' | searchrl play --env regulations --index 3
    """
    from searchrl.cli.loading import load_registry
    from searchrl.config import build_config
    from searchrl.engine.rollout.records import rollout_record
    from searchrl.engine.rollout.worlds import make_worlds
    from searchrl.errors import FailureLimitError
    from searchrl.programs.play import SHORTCUTS, choose_task, play_episode, read_turn
    from searchrl.screen.terminal import make_console
    from searchrl.screen.transcript import colour_observation, verdict_lines

    is_json = values["json"]
    console = make_console(sys.stderr if is_json else sys.stdout)
    layers = read_layers()
    config = build_config(*layers)
    registry = load_registry(config)
    world = make_worlds(config, registry)[0]

    def read_line() -> str | None:
        if sys.stdin.isatty():
            say("> ", nl=False, err=is_json)
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None

    split = config.eval.split
    seed = config.seed if any("seed" in layer for layer in layers) else None
    index = choose_task(world, split, values["index"], seed)
    shortcuts = ",  ".join(text for kind, text in SHORTCUTS.values() if world.can_open(kind))
    console.print(_HELP.format(shortcuts), "", style="dim")
    console.print(f"Task {index} of split {split} (again: --index {index})", "", style="dim")
    rollout = play_episode(
        world,
        config,
        index=index,
        show=lambda text: console.print(colour_observation(text)),
        read=lambda: read_turn(
            world.protocol, read_line, lambda text: console.print(text, style="red")
        ),
    )
    world.close()
    if rollout is None:
        if is_json:
            unscored = "the episode was left before its end"
            print_json({"reward": None, "scores": {}, "unscored": unscored})
        console.print("The episode is not finished, so there are no scores.")
        sys.exit(FailureLimitError.exit_code if is_json else 0)
    episode, row = rollout.episode, rollout_record(rollout, "play", {})
    if is_json:
        task, shared = row["task"], ("final_answer", "stop_reason", "reward", "scores", "unscored")
        facts = {"task": task["id"], "question": task["question"], "expected": task["answers"]}
        print_json(facts | {key: row[key] for key in shared})
    if episode.turns and episode.turns[-1].action.reason:
        console.print(episode.turns[-1].action.reason, style="yellow")
    console.print(f"The episode is over ({episode.stop_reason}).")
    for line in verdict_lines(row):
        console.print(line)
    if episode.failure is not None:
        # The same status as for a run with too many failures: the command line was right.
        console.print(episode.failure.detail, style="dim")
        sys.exit(FailureLimitError.exit_code)
