"""Procedures (SOPs): their files, how one is found, and how it reads.

Owns the search over our own texts, too. Priority decides between procedures that fit equally well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from searchrl import ConfigError, suggest_path
from searchrl.contracts import Passage, RetrieverFactory
from searchrl_memory.notes import Strict, Text, parse_as

EXPECTED = (
    "name, description, trigger, category, priority (a whole number) and steps, each with action "
    "and, if it is not for all cases, condition"
)


class Step(Strict):
    """A step of a procedure; `condition` says when it is for."""

    action: Text
    condition: Text | None = None


class Procedure(Strict):
    """A procedure for the situation that `trigger` describes."""

    name: Text
    description: Text
    trigger: Text
    category: str = ""
    priority: int = 0
    steps: Annotated[list[Step], Field(min_length=1)]

    def __str__(self) -> str:
        lines = [f"Procedure {self.name}: {self.description}"]
        for number, step in enumerate(self.steps, 1):
            condition = f"If {step.condition}: " if step.condition else ""
            lines.append(f"{number}. {condition}{step.action}")
        return "\n".join(lines)


def load_procedures(folder: str) -> tuple[Procedure, ...]:
    """The procedures of a folder, highest priority first; one JSON file each.

    Raises:
        ConfigError: with a line for every file that is wrong, or if there is none.
    """
    path = Path(folder)
    files = sorted(path.glob("*.json"))
    if not files:
        fault = "holds no .json file" if path.is_dir() else "is no folder"
        raise ConfigError(
            f"'{folder}' {fault}.{suggest_path(path)} Name a folder with a JSON file per "
            f"procedure: {EXPECTED}"
        )
    made: dict[str, Procedure] = {}
    problems = []
    for file in files:
        try:
            one = parse_as(Procedure, file.read_bytes(), file, EXPECTED)
            if one.name in made:
                raise ConfigError(f"{file}: name = '{one.name}', as in another file; change one")
            made[one.name] = one
        except OSError as error:
            problems.append(f"{file}: {error.strerror}; make it readable, or remove it")
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))
    return tuple(sorted(made.values(), key=lambda one: -one.priority))


def find_procedures(
    procedures: Sequence[Procedure], retriever: RetrieverFactory, words: str, k: int
) -> list[Procedure]:
    """The k procedures that fit best by name, trigger and description."""
    passages = [
        Passage(id=str(place), title=one.name, text=f"{one.trigger}\n{one.description}")
        for place, one in enumerate(procedures)
    ]
    return [procedures[int(one.id)] for one in find(passages, retriever, words, k)]


def find(
    passages: Sequence[Passage], retriever: RetrieverFactory, words: str, k: int
) -> list[Passage]:
    """The k of these passages that fit best; retrievers of words keep the order of equal ones.

    Raises:
        ConfigError: the retriever has passages of its own.
    """
    if not passages or not words.strip():
        return []
    (found,) = retriever(tuple(passages)).search([words], k)
    if not {one.id for one in passages}.issuperset(one.id for one in found):
        raise ConfigError(
            "this retriever searches passages of its own, not those that it is given; choose one "
            "without an index or a server, such as bm25"
        )
    return found
