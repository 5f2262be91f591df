"""`searchrl control questions`: training questions made of the passages of a collection.

Owns the flags, who writes, and what is printed. What leaks is in `generation.leakage`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from searchrl_control.commands.surroundings import FOLDER, read_settings, say, set_flag

if TYPE_CHECKING:
    from searchrl_control.environment.worlds import World
    from searchrl_control.generation.written import Batch, Writer

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
@click.option(
    "--own-test", is_flag=True,
    help="Draw the test questions from the made-up ones, not from the collection.",
)  # fmt: skip
def questions(
    folder: Path,
    collection: str,
    assignments: tuple[str, ...],
    count: int,
    kinds: tuple[str, ...],
    writer: str,
    model: str | None,
    seed: int,
    own_test: bool,
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
    from searchrl_control.environment.worlds import open_world
    from searchrl_control.generation.leakage import Leakage
    from searchrl_control.generation.written import Kind, save_questions, write_questions

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"'{folder}' is there already; name a new folder")
    world = open_world({**read_settings(assignments), "collection": collection})
    test = world.questions(TEST)
    leakage = Leakage(
        tuple(one.text for one in test),
        frozenset(name for one in test for name, grade in one.qrels.items() if grade > 0),
    )
    say(f"{world.name}: {len(world.library.passages):,} passages, {len(test):,} test questions")
    try:
        batch = write_questions(
            world.library,
            count,
            kinds=[Kind(kind) for kind in kinds or _KINDS],
            writer=_find_writer(writer, model, world),
            leakage=leakage,
            seed=seed,
        )
    except ValueError as error:
        raise ConfigError(f"no question can be made of '{collection}': {error}") from error
    if not batch.questions:
        raise ConfigError(
            f"every question that was written leaks: {_count(batch)}. Nothing was saved; use "
            "another writer, or another --kind"
        )
    save_questions(batch, world.library, folder, () if own_test else test)
    _show(batch, folder, count)


def _find_writer(name: str, model: str | None, world: World) -> Writer:
    from searchrl import ConfigError
    from searchrl_control.generation.written import TemplateWriter, model_writer
    from searchrl_control.reformulate.weights import load_weights
    from searchrl_control.reformulate.writer import ask_endpoint

    scheme, _, address = name.partition(":")
    is_server = scheme == "endpoint"
    if is_server != (model is not None):
        raise ConfigError("--writer endpoint:URL and --model NAME go together")
    if is_server and model is not None:
        return model_writer(ask_endpoint(address, model))
    if name == _TEMPLATE:
        return TemplateWriter(world.library)
    return model_writer(load_weights(name).ask)


def _show(batch: Batch, folder: Path, count: int) -> None:
    made = len(batch.questions)
    kinds = [sum(one.kind == kind for one in batch.questions) for kind in _KINDS]
    told = ", ".join(f"{number} {kind}" for kind, number in zip(_KINDS, kinds, strict=True))
    click.echo(f"{made:,} of {count:,} questions: {told}")
    if batch.left_out:
        click.echo(f"left out: {_count(batch)} ({folder / 'left_out.jsonl'})")
    for one in batch.questions[:3]:
        click.echo(f"  {one.kind}: {one.text}")
    click.echo(f"train on them: --set env.collection={folder}")


def _count(batch: Batch) -> str:
    return ", ".join(f"{number} because {why}" for why, number in batch.refused.most_common())
