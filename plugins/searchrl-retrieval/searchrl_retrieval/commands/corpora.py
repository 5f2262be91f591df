"""A corpus for a command: whatever the environment `corpus` reads, source code, and chunks of it.

Owns the flags that name a corpus, and the choice of the reader by what is at a path. Called by the
commands of this package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from searchrl import ConfigError, suggest_path
from searchrl.contracts import Passage
from searchrl.data import Problems, iter_corpus
from searchrl_retrieval.chunking.code import read_code_folder
from searchrl_retrieval.chunking.prose import chunk_passages

F = TypeVar("F", bound=Callable[..., Any])


def corpus_flags(command: F) -> F:
    """`--corpus`, `--code` and `--max-chars`: the fields of `Corpus`."""
    for flag in (
        click.option(
            "--max-chars", type=int, metavar="N",
            help="Cut longer passages of --corpus between sentences.",
        ),
        click.option(
            "--code", "code", multiple=True, metavar="PATH",
            help="Source code, in chunks: functions, classes, methods, imports, docstrings.",
        ),
        click.option(
            "--corpus", "corpora", multiple=True, metavar="PATH",
            help="A corpus file or a folder of texts; may be repeated.",
        ),
    ):  # fmt: skip
        command = flag(command)
    return command


class Corpus(NamedTuple):
    """What the flags of `corpus_flags` say."""

    corpora: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    max_chars: int | None = None

    @property
    def is_named(self) -> bool:
        """Whether there is any."""
        return bool(self.corpora or self.code)

    def flags(self) -> tuple[str, ...]:
        """The flags again, with absolute paths."""
        named = [("--corpus", path) for path in self.corpora] + [("--code", p) for p in self.code]
        words = [word for flag, path in named for word in (flag, os.path.abspath(_plain(path)))]
        return (*words, *(() if self.max_chars is None else ("--max-chars", str(self.max_chars))))

    def read(self) -> Sequence[Passage]:
        """The passages of corpus files, folders of texts and source code, in this order.

        Raises:
            ConfigError: there is neither, or `max_chars` is too small.
            DataError: something cannot be used; names all of it.
        """
        return tuple(self.stream({}))

    def stream(self, places: dict[str, str] | None = None) -> Iterator[Passage]:
        """The same passages, one after another; what cannot be used is said behind the last one.

        So a corpus may be larger than the memory. `places`: as for `iter_corpus`.
        """
        if not self.is_named:
            raise ConfigError("there is no corpus: give --corpus PATH, or --code PATH")
        problems = Problems()
        texts = chain.from_iterable(iter_corpus(_plain(p), problems, places) for p in self.corpora)
        yield from texts if self.max_chars is None else chunk_passages(texts, self.max_chars)
        for path in self.code:
            yield from _read_code(_plain(path), problems)
        problems.ensure_none()
        for note in problems.notes:
            click.echo(f"note: {note}", err=True)


def _plain(path: str) -> Path:
    return Path(os.path.expanduser(path))


def _read_code(path: Path, problems: Problems) -> Sequence[Passage]:
    if path.exists():
        return read_code_folder(path, problems)
    problems.add(path, 0, f"no such file or folder of source code.{suggest_path(path)}")
    return ()
