"""From passages to vectors on disk: the first half of a build, in parts.

Owns the part files, the vectors of some hundred passages each, and how much a title counts. A part
does not depend on other parts, so a build that was killed goes on behind the last one. Memory is
that of one part. Called by `kinds` and `chroma`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from searchrl.contracts import Passage
from searchrl.retrieval import tracked
from searchrl_retrieval.dense.encoders import Encoder, Vectors
from searchrl_retrieval.index.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PASSAGES_IN_A_PART = 1024
"""About a minute of work of a small model on one core."""


def encode_parts(
    passages: Sequence[Passage], encoder: Encoder, title_weight: float, first: int, work: Work
) -> list[NDArray[np.float32]]:
    """The vectors of the passages from place `first` on, as mapped arrays [N_i, D] in order."""
    import numpy as np

    total = len(passages) - first
    places = tracked(range(first, len(passages)), "embedding passages", total)
    names = []
    for start in range(first, len(passages), PASSAGES_IN_A_PART):
        name = f"vectors-{start:010d}.npy"
        names.append(name)
        block = islice(places, min(PASSAGES_IN_A_PART, len(passages) - start))
        if work.has(name):
            for _ in block:  # done before a kill
                pass
            continue
        with work.writing(name) as path, path.open("wb") as file:
            rows = encode_block((passages[place] for place in block), encoder, title_weight)
            np.save(file, rows)
    return [np.load(work.part(name), mmap_mode="r") for name in names]


def encode_block(
    passages: Iterable[Passage], encoder: Encoder, title_weight: float, size: int = 128
) -> Vectors:
    """The vectors [N, D] of passages: that of title and text, plus that of the title alone.

    The second counts `title_weight` times; the length of the first is kept.
    """
    import numpy as np

    rest = iter(passages)
    rows = [np.zeros((0, encoder.dim), dtype=np.float32)]
    while block := list(islice(rest, size)):
        rows.append(_mix(encoder, block, title_weight))
    return np.concatenate(rows)


def _mix(encoder: Encoder, block: Sequence[Passage], title_weight: float) -> Vectors:
    import numpy as np

    whole = encoder.encode_passages(block)
    titled = [row for row, passage in enumerate(block) if passage.title]
    if not title_weight or not titled:
        return whole
    titles = [Passage(block[row].id, block[row].title) for row in titled]
    lengths = np.linalg.norm(whole[titled], axis=1, keepdims=True)
    mixed = whole[titled] + title_weight * encoder.encode_passages(titles)
    now = np.linalg.norm(mixed, axis=1, keepdims=True)
    whole[titled] = mixed * (lengths / np.where(now > 0, now, 1))
    return whole
