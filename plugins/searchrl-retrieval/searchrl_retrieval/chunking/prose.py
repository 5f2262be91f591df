"""Long passages cut into shorter ones, between sentences, as the core cuts text files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from searchrl import ConfigError
from searchrl.contracts import Passage
from searchrl.data import split_prose

_LEAST = 40
"""Characters below which a limit makes no sense."""


def chunk_passages(passages: Iterable[Passage], max_chars: int) -> Iterator[Passage]:
    """Yield passages of at most `max_chars` characters of text; shorter ones as they are.

    Cuts are at ends of paragraphs, else of sentences, and inside a sentence only if it is longer
    than the limit. Piece n of passage `id` is `id#n`, with the title of the whole.
    """
    if max_chars < _LEAST:
        raise ConfigError(f"--max-chars must be at least {_LEAST}, got {max_chars}.")
    for passage in passages:
        pieces = split_prose(passage.text, max_chars)
        if len(pieces) < 2:
            yield passage
            continue
        for number, piece in enumerate(pieces, 1):
            yield replace(passage, id=f"{passage.id}#{number}", text=piece)
