"""A plugin for these tests: a wrapper whose steps take long, and a generator that never computes.

`slow` waits in every step. `one_at_a_time` is a retriever that waits and gets one call at a time.
`saying` is a generator that searches in every turn, at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium

from searchrl import hookimpl
from searchrl.algorithms import TurnStop
from searchrl.contracts import Passage
from searchrl.engine.sampling.generator import FinishedTurn

CALL_S = 0.05


class Slow(gymnasium.Wrapper):
    def __init__(self, env: Any, *, seconds: float = 0.5) -> None:
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return self.env.step(action)


class OneAtATime:
    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        time.sleep(CALL_S * len(queries))
        return [list(self.passages[:k]) for _ in queries]


class Saying:
    def __init__(self, policy: Any, sampling: Any, *, num_slots: int, max_length: int) -> None:
        self.policy = policy
        self.turn = policy.renderer.encode_model_text("<think>x</think><search>code</search>")
        self.handles, self.asked = 0, []

    def open(self, prompt_ids: Any, n: int, rng_keys: Any, experts: Any = None) -> list[int]:
        self.handles += n
        return list(range(self.handles - n, self.handles))

    def submit(self, handle: int, append_ids: Any, stops: Any, max_tokens: int) -> None:
        self.asked.append(handle)

    def poll(self) -> list[Any]:
        asked, self.asked = self.asked, []
        logps, version = (-1.0,) * len(self.turn), self.policy.version
        return [
            FinishedTurn(handle, tuple(self.turn), logps, TurnStop.STOP_STRING, version)
            for handle in asked
        ]

    def close(self, handle: int) -> None:
        """Nothing is held."""

    def sync(self, policy: Any) -> int:
        return policy.version


@hookimpl
def register_wrappers(register: Any) -> None:
    register("slow", Slow)


@hookimpl
def register_retrievers(register: Any) -> None:
    register("one_at_a_time", OneAtATime, concurrent=False)


@hookimpl
def register_generators(register: Any) -> None:
    register("saying", Saying)
