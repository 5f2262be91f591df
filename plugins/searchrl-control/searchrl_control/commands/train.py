"""`searchrl control train`: train a network that decides.

Owns the flags; the training is `training.loop`, its folder `training.folder`.
"""

from __future__ import annotations

from pathlib import Path

import click

from searchrl_control.commands.surroundings import (
    FILE,
    FOLDER,
    collection_flag,
    plugin_flag,
    read_assignments,
    say,
)


@click.command("train")
@click.option("--run-dir", type=FOLDER, metavar="DIR", help="The folder of the run; a new one.")
@click.option("--resume", type=FOLDER, metavar="RUN", help="Go on with a run that was stopped.")
@click.option("--config", type=FILE, metavar="FILE", help="Settings as YAML.")
@collection_flag
@click.option(
    "--set", "assignments", multiple=True, metavar="K=V",
    help="A setting, such as lr=0.02; env.K=V is of the environment, for all collections.",
)  # fmt: skip
@plugin_flag
def train(
    run_dir: Path | None,
    resume: Path | None,
    config: Path | None,
    names: tuple[str, ...],
    assignments: tuple[str, ...],
    plugins: tuple[str, ...],
) -> None:
    """Train a network that decides how questions are searched.

    A run that was stopped, or killed, goes on with --resume as if nothing had been.

    \b
    Examples:
      searchrl control train --run-dir runs/mine --set env.actions=heads --set max_steps=40
      searchrl control train --config examples/retrieval_control.yaml --run-dir runs/control
      searchrl control train --resume runs/control
    """
    from searchrl_retrieval.commands.surroundings import load_registry

    from searchrl import ConfigError, load_yaml
    from searchrl_control.comparison.runs import ensure_asks_nobody
    from searchrl_control.environment.worlds import ENV
    from searchrl_control.training import folder

    if (run_dir is None) == (resume is None):
        raise ConfigError("name a new folder with --run-dir, or a run to go on with --resume")
    entry = load_registry(plugins).get("env", ENV)
    changes, own = read_assignments(assignments)
    if resume is not None and (config or names or own):
        raise ConfigError(
            "--resume goes on with the settings of the run; only --set env.K=V may be added, such "
            "as where the data lie"
        )
    if resume is not None:
        settings, _ = folder.read_config(resume)
    else:
        collections = {"envs": [{"collection": name} for name in dict.fromkeys(names)]}
        file = load_yaml(config) if config is not None else {}
        settings = folder.build_settings(file, collections if names else {}, own)
    ensure_asks_nobody(settings.envs, f"'{resume or config}'", changes)
    envs = [{**one, **changes} for one in settings.envs]
    settings = settings.model_copy(update={"envs": envs})
    where = resume or run_dir
    assert where is not None
    make = folder.begin_run if resume is None else folder.reopen_run
    training = make(where, settings, entry)
    folder.run_training(training, where, say)
    click.echo(f"{where}: {training.step} steps\nNext:  searchrl control compare {where}")
