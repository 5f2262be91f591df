"""`searchrl control`: the group of this package's commands, with `train` and `questions`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from searchrl import ConfigError
from searchrl_control.commands.compare import (
    FOLDER,
    collections_flag,
    compare,
    config_flag,
    evaluate,
    say,
    sequences,
    set_flag,
)

_KINDS = ("single", "multi", "adversarial")


@click.group()
def control() -> None:
    """Train and compare agents that decide how to search, and make questions for them.

    \b
    Examples:
      searchrl control sequences --collection data/scifact --set env.actions=heads
      searchrl control train --run-dir runs/seed1 --set env.actions=heads --set seed=1
      searchrl control compare runs/seed1 runs/seed2 runs/seed3 --out figures.json
      searchrl control eval runs/seed1 --collection data/mine
    """


for _command in (sequences, compare, evaluate):
    control.add_command(_command)


@control.command("train")
@click.option("--run-dir", type=FOLDER, metavar="DIR", help="The folder of the run; a new one.")
@click.option("--resume", type=FOLDER, metavar="RUN", help="Go on with a run that was stopped.")
@config_flag
@collections_flag
@set_flag
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
      searchrl control train --config examples/retrieval_control.yaml --run-dir runs/control
      searchrl control train --resume runs/control
    """
    from searchrl_control.training import folder

    if run_dir and not resume:
        where = run_dir
        training = folder.begin_run(where, folder.read_training(config, names, assignments))
    elif resume and not (run_dir or config or names):
        where, run = resume, folder.read_run(resume)
        changes, _ = folder.read_assignments(assignments)  # such as where the data lie
        settings = folder.change_envs(run.settings, changes, f"the run '{resume}'")
        training = folder.reopen_run(run, settings)
    else:
        raise ConfigError(
            "name a new folder with --run-dir, or a run to go on with --resume; that has its own "
            "settings, to which only --set env.K=V may be added"
        )
    folder.run_training(training, where, say)
    click.echo(f"{where}: {training.step} steps\nNext:  searchrl control compare {where}")


@control.command("questions")
@click.argument("folder", metavar="OUT", type=FOLDER)
@click.option(
    "--collection", default="demo", show_default=True, metavar="NAME",
    help="A folder, or a name as env.collection takes it.",
)  # fmt: skip
@set_flag
@click.option(
    "--count", type=click.IntRange(1, 1_000_000), default=100, show_default=True, metavar="N",
    help="Questions to make.",
)  # fmt: skip
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(_KINDS),
    help="A kind of question; repeat it. All three by default.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the draws.")
def questions(
    folder: Path,
    collection: str,
    assignments: tuple[str, ...],
    count: int,
    kinds: tuple[str, ...],
    seed: int,
) -> None:
    """Make training questions of the passages of a collection, without those that leak.

    The model of env.policy or env.url writes them; without one, a template does. OUT becomes a BEIR
    folder: made-up questions for training, and the collection's own test questions; `--set
    env.collection=OUT` trains on it. A question is left out if it copies its passage, names its
    title, is nearly a test question, or is made of a passage that answers one; OUT/left_out.jsonl
    has these, with the reason.

    \b
    Examples:
      searchrl control questions made --collection data/scifact --kind multi --count 500
    """
    from searchrl_control.collections.judged import TEST
    from searchrl_control.collections.written import (
        Kind,
        TemplateWriter,
        model_writer,
        save_questions,
        write_questions,
    )
    from searchrl_control.environment.env import RetrievalControlEnv
    from searchrl_control.training.folder import ensure_new, read_assignments

    ensure_new(folder, "name a new folder")
    settings, _ = read_assignments(assignments)
    world = RetrievalControlEnv(**{**settings, "collection": collection}).world
    library, test = world.library, world.questions[TEST]
    say(f"{world.name}: {len(library.passages):,} passages, {len(test):,} test questions")
    write = model_writer(world.ask) if world.ask else TemplateWriter(library)
    wanted = [Kind(kind) for kind in kinds or _KINDS]
    made = write_questions(library, test, count, wanted, write, seed)
    reasons = Counter(one.reason for one in made if one.reason)
    left_out = ", ".join(f"{number} because {why}" for why, number in reasons.most_common())
    good = [one for one in made if not one.reason]
    if not good:
        raise ConfigError(
            f"every question that was written leaks: {left_out}. Nothing was saved; use another "
            "model, or another --kind"
        )
    save_questions(made, library, test, folder)
    counts = ", ".join(f"{sum(one.kind == kind for one in good)} {kind}" for kind in _KINDS)
    click.echo(f"{len(good):,} of {count:,} questions: {counts}")
    if left_out:
        click.echo(f"left out: {left_out} ({folder / 'left_out.jsonl'})")
    click.echo(f"train on them: --set env.collection={folder}")
