"""`searchrl control`: the group of this package's commands, with `train` and `questions`.

Owns their flags. A training is `training.loop`, its folder `training.folder`; who writes questions
and what leaks is in `collections.written`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from searchrl_control.commands.compare import (
    FILE,
    FOLDER,
    collection_flag,
    compare,
    read_assignments,
    read_settings,
    say,
    sequences,
    set_flag,
)

_KINDS = ("single", "multi", "adversarial")
_TEMPLATE = "template"


@click.command("questions")
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
@click.option(
    "--writer", default=_TEMPLATE, show_default=True, metavar="NAME",
    help="template (no model), endpoint:URL, or a policy: a run, the folder of a model, tiny.",
)  # fmt: skip
@click.option("--model", metavar="NAME", help="Of an endpoint: the model that is asked.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of the draws.")
def questions(
    folder: Path,
    collection: str,
    assignments: tuple[str, ...],
    count: int,
    kinds: tuple[str, ...],
    writer: str,
    model: str | None,
    seed: int,
) -> None:
    """Make training questions of the passages of a collection, without those that leak.

    OUT becomes a BEIR folder: made-up questions for training, and the collection's own test
    questions; `--set env.collection=OUT` trains on it. A question is left out if it copies its
    passage, names its title, is nearly a test question, or is made of a passage that answers one;
    OUT/left_out.jsonl has these, with the reason.

    \b
    Examples:
      searchrl control questions made --collection data/scifact --count 500
      searchrl control questions made --collection data/scifact --kind multi \\
        --writer endpoint:http://localhost:8000/v1 --model Qwen/Qwen3-4B
    """
    from searchrl import ConfigError
    from searchrl_control.collections.judged import TEST
    from searchrl_control.collections.places import default_cache
    from searchrl_control.collections.written import (
        Kind,
        TemplateWriter,
        model_writer,
        save_questions,
        write_questions,
    )
    from searchrl_control.environment.env import RetrievalControlEnv
    from searchrl_control.reformulate.writer import ask_endpoint, ask_weights

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"'{folder}' is there already; name a new folder")
    scheme, _, address = writer.partition(":")
    if (scheme == "endpoint") != (model is not None):
        raise ConfigError("--writer endpoint:URL and --model NAME go together")
    ask = None
    if model is not None:
        ask = ask_endpoint(address, model)
    elif writer != _TEMPLATE:
        ask = ask_weights(writer, default_cache() / "questions.sqlite")
    world = RetrievalControlEnv(**{**read_settings(assignments), "collection": collection}).world
    library, test = world.library, world.questions(TEST)
    say(f"{world.name}: {len(library.passages):,} passages, {len(test):,} test questions")
    write = model_writer(ask) if ask is not None else TemplateWriter(library)
    wanted = [Kind(kind) for kind in kinds or _KINDS]
    made = write_questions(library, test, count, wanted, write, seed)
    reasons = Counter(one.reason for one in made if one.reason)
    left_out = ", ".join(f"{number} because {why}" for why, number in reasons.most_common())
    good = [one for one in made if not one.reason]
    if not good:
        raise ConfigError(
            f"every question that was written leaks: {left_out}. Nothing was saved; use another "
            "writer, or another --kind"
        )
    save_questions(made, library, test, folder)
    told = ", ".join(f"{sum(one.kind == kind for one in good)} {kind}" for kind in _KINDS)
    click.echo(f"{len(good):,} of {count:,} questions: {told}")
    if left_out:
        click.echo(f"left out: {left_out} ({folder / 'left_out.jsonl'})")
    for one in good[:3]:
        click.echo(f"  {one.kind}: {one.text}")
    click.echo(f"train on them: --set env.collection={folder}")


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
    run = None
    if resume is not None:
        if config or names or own:
            raise ConfigError(
                "--resume goes on with the settings of the run; only --set env.K=V may be added, "
                "such as where the data lie"
            )
        run = folder.read_run(resume)
        settings = run.settings
    else:
        file = load_yaml(config) if config is not None else {}
        collections = [{"collection": name} for name in dict.fromkeys(names)]
        settings = folder.build_settings(file, {"envs": collections} if names else {}, own)
    ensure_asks_nobody(settings.envs, f"'{resume or config}'", changes)
    envs = [{**one, **changes} for one in settings.envs]
    settings = settings.model_copy(update={"envs": envs})
    training = folder.reopen_run(run, settings) if run else folder.begin_run(where, settings)
    folder.run_training(training, where, say)
    click.echo(f"{where}: {training.step} steps\nNext:  searchrl control compare {where}")


for command in (sequences, compare, questions):
    control.add_command(command)
