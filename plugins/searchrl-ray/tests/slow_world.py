"""A plugin for these tests: a retriever that waits, and a generator that never computes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from searchrl import hookimpl
from searchrl.algorithms import TurnStop
from searchrl.contracts import Passage
from searchrl.engine.sampling.hf_generator import HFGenerator


class OneAtATime:
    """A query takes 50 ms; a worker makes one call at a time."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        time.sleep(0.05 * len(queries))
        return [list(self.passages[:k]) for _ in queries]


class Saying(HFGenerator):
    """Searches in every turn, at once."""

    def poll(self) -> list[Any]:
        turn = self.policy.renderer.encode_model_text("<think>x</think><search>code</search>")
        asked = [one for one in self._sequences.values() if one.is_asked]
        for sequence in asked:
            for token in turn:
                sequence.append(token, -1.0)
        return [one.finish(TurnStop.STOP_STRING, self.version) for one in asked]


@hookimpl
def register_retrievers(register: Any) -> None:
    register("one_at_a_time", OneAtATime, concurrent=False)


@hookimpl
def register_generators(register: Any) -> None:
    register("saying", Saying)
