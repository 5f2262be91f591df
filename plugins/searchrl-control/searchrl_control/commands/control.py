"""`searchrl control`: the group of this package's commands, and `searchrl control train`.

Owns the flags of `train`; the training is `training.loop`, its folder `training.folder`.
"""

from __future__ import annotations

from pathlib import Path

import click

from searchrl_control.commands.compare import compare
from searchrl_control.commands.questions import questions
from searchrl_control.commands.sequences import sequences
from searchrl_control.commands.surroundings import (
    FILE,
    FOLDER,
    collection_flag,
    read_assignments,
    say,
)


@click.group()
def control() -> None:
    """Train and compare agents that decide how to search, and make questions for them.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control train --run-dir runs/seed1 --set env.actions=heads --set seed=1
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --sweep --out figures.json
    """


@control.command("train")
@click.option("--run-dir", type=FOLDER, metavar="DIR", help="The folder of the run; a new one.")
@click.option("--resume", type=FOLDER, metavar="RUN", help="Go on with a run that was stopped.")
@click.option("--config", type=FILE, metavar="FILE", help="Settings as YAML.")
@collection_flag
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as lr=0.02; env.K=V is of the environment, for all collections.",
)  # fmt: skip
def train(
    run_dir: Path | None,
    resume: Path | None,
    config: Path | None,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
) -> None:
    """Train a network that decides how questions are searched.

    A run that was stopped, or killed, goes on with --resume as if nothing had been.

    \b
    Examples:
      searchrl control train --run-dir runs/mine --set env.actions=heads --set max_steps=40
      searchrl control train --config examples/retrieval_control.yaml --run-dir runs/control
      searchrl control train --resume runs/control
    """
    from searchrl import ConfigError, load_yaml
    from searchrl_control.comparison.runs import ensure_asks_nobody
    from searchrl_control.training import folder

    where = resume or run_dir
    if where is None or (run_dir and resume):
        raise ConfigError("name a new folder with --run-dir, or a run to go on with --resume")
    changes, own = read_assignments(assignments)
    if resume is not None:
        if config or names or own:
            raise ConfigError(
                "--resume goes on with the settings of the run; only --set env.K=V may be added, "
                "such as where the data lie"
            )
        settings, _ = folder.read_config(resume)
    else:
        file = load_yaml(config) if config is not None else {}
        collections = [{"collection": name} for name in dict.fromkeys(names)]
        settings = folder.build_settings(file, {"envs": collections} if names else {}, own)
    ensure_asks_nobody(settings.envs, f"'{resume or config}'", changes)
    envs = [{**one, **changes} for one in settings.envs]
    settings = settings.model_copy(update={"envs": envs})
    make = folder.begin_run if resume is None else folder.reopen_run
    training = make(where, settings)
    folder.run_training(training, where, say)
    click.echo(f"{where}: {training.step} steps\nNext:  searchrl control compare {where}")


for command in (sequences, compare, questions):
    control.add_command(command)
