"""Tools that wait: waits overlap, what is sampled does not depend on them, nobody is crowded."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_toy import LIMITS, TOY_PLUGIN, SayingGenerator, micro_policy

from searchrl.config import build_config
from searchrl.core.episode import FailureKind
from searchrl.engine.rollout.dialogue import Limits, RolloutRequest
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.generator import FinishedTurn, Sampling, mix_key
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.engine.sampling.slot_generator import SlotGenerator
from searchrl.plugins import Registry, load_plugins

pytestmark = pytest.mark.thorough

PLUGIN = Path(__file__).resolve().parents[3] / "benchmarks" / "slow_tools.py"
WIDE = Limits(10_000, 10_000, 100_000, env_timeout_s=60)
SEARCH = "<think>t</think>\n<search>mira</search>"
ANSWER = "<think>t</think>\n<answer>4</answer>"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins([str(TOY_PLUGIN), str(PLUGIN)], strict=True)


@pytest.fixture
def tools(registry: Registry) -> Iterator[Any]:
    """The module of the slow tools; without latency again afterwards."""
    module = sys.modules[registry.get("env", "slow").load().__module__]
    module.USAGE.clear()
    yield module
    module.LATENCY_S.update(dict.fromkeys(module.LATENCY_S, 0.0))


MakeWorld = Callable[..., TaskWorld]


@pytest.fixture
def make_world(registry: Registry) -> Iterator[MakeWorld]:
    made: list[TaskWorld] = []

    def make(env: str = "slow", retriever: str = "slow", **settings: Any) -> TaskWorld:
        config = build_config({"env": env, "retriever": retriever, "reward": "em", **settings})
        made.extend(make_worlds(config, registry))
        return made[-1]

    yield make
    for world in made:
        world.close()


def play_experts(world: TaskWorld, num_episodes: int = 16) -> list[Rollout]:
    """Episodes of the expert, all at once: whatever takes time is the tools."""
    codec = ByteCodec()
    driver = RolloutDriver(ScriptedGenerator(codec), codec, WIDE)
    requests = [
        RolloutRequest(f"g{i}", world, "train", i, (i,), script=world.script("expert"))
        for i in range(num_episodes)
    ]
    return [rollout for group in driver.run(requests) for rollout in group.rollouts]


def facts(rollouts: Sequence[Rollout]) -> list[Any]:
    """Everything sampled and scored, to the last bit."""
    return [
        (r.trajectory.ids, r.trajectory.sampler_logps, r.episode.turns, r.scored.scores)
        for r in rollouts
    ]


@pytest.mark.parametrize("kind", ["env", "retriever", "reward"])
def test_waits_overlap(make_world: MakeWorld, tools: Any, kind: str):
    world = make_world(reward="slow_reward")
    expected = play_experts(world)
    num_calls = 16
    if kind != "reward":
        num_calls = sum(rollout.episode.num_searches for rollout in expected)
    tools.LATENCY_S[kind] = 0.1
    started = time.perf_counter()
    played = play_experts(world)
    took = time.perf_counter() - started
    assert facts(played) == facts(expected)
    assert took < 0.1 * num_calls / 2, f"{num_calls} calls of 0.1 s each"


def test_one_call_at_a_time_for_those_who_ask_for_it(make_world: MakeWorld, tools: Any):
    """And everybody gets what is theirs."""
    expected = play_experts(make_world(reward="slow_reward"))
    tools.LATENCY_S.update(retriever=0.05, reward=0.005)
    world = make_world(retriever="slow-alone", reward="slow_reward_alone")
    played = play_experts(world)
    assert [r.episode.turns for r in played] == [r.episode.turns for r in expected]
    assert [r.reward for r in played] == [r.reward for r in expected]
    search, judge = tools.USAGE["slow-alone"], tools.USAGE["slow_reward_alone"]
    assert search.most_at_once == 1
    assert sum(search.num_queries) == sum(len(r.episode.queries) for r in played)
    assert judge.most_at_once == 1 and judge.num_calls == 16


def test_searches_that_wait_are_one_batch_and_a_query_that_fails_in_it_fails_alone(
    make_world: MakeWorld, tools: Any
):
    world = make_world("toy", "slow-alone")
    tools.LATENCY_S["retriever"] = 0.1
    search = tools.SlowRetriever.search
    bad = "<think>t</think>\n<search>boom</search>"

    def find(self: Any, queries: Sequence[str], k: int) -> Any:
        found = search(self, queries, k)
        if "boom" in queries:
            raise ConnectionError("no such page")
        return found

    tools.SlowRetriever.search = find
    try:
        codec = ByteCodec()
        driver = RolloutDriver(_Alternating(codec, [SEARCH, SEARCH, SEARCH, bad]), codec, WIDE)
        # One task: one index, which is where the searches meet.
        request = RolloutRequest("g", world, "train", 0, tuple(range(12)))
        rollouts = driver.run([request])[0].rollouts
    finally:
        tools.SlowRetriever.search = search
    assert max(tools.USAGE["slow-alone"].num_queries) > 2
    for number, rollout in enumerate(rollouts):
        failure = rollout.episode.failure
        assert (failure is not None) == (number % 4 == 3)
        if failure is not None:
            assert failure.kind is FailureKind.RETRIEVER and "no such page" in failure.message


class _Alternating(SayingGenerator):
    """Every dialogue begins with one of several turns, in turn, and then answers."""

    def __init__(self, codec: Any, first: Sequence[str]) -> None:
        super().__init__(codec.encode_model_text, [*first, ANSWER])
        self._first = len(first)

    def poll(self) -> list[FinishedTurn]:
        for handle, _ in self._waiting:
            # 0: has said nothing yet.
            said = self._said[handle]
            self._said[handle] = handle % self._first if said == 0 else self._first
        return super().poll()


def test_what_is_sampled_is_the_same_bytes_at_any_latency(
    make_world: MakeWorld, tools: Any, micro_model: Path, device: torch.device
):
    """0, 20 and 100 ms: what is decoded together must not depend on when a tool answers."""

    policy = micro_policy(micro_model, device=device)

    def sample(latency_s: float, jitter: bool) -> list[Any]:
        world = make_world(
            "toy", "slow", reward="parity", protocol={"name": "short-stops", "instruction": ""}
        )
        calls = iter(range(10_000))
        tools.LATENCY_S["retriever"] = latency_s
        if jitter:  # and answers that overtake each other
            make, lock = world.make_env, threading.Lock()

            def make_late() -> Any:
                env = make()
                step = env.step

                def late(action: str) -> Any:
                    with lock:
                        number = next(calls)
                    time.sleep(0.03 * (number % 3 == 0))
                    return step(action)

                env.step = late  # type: ignore[method-assign]
                return env

            world.make_env, world._idle = make_late, []
        generator = SlotGenerator(policy, Sampling(), 7, 800)
        driver = RolloutDriver(generator, policy.renderer, LIMITS)
        requests = [
            RolloutRequest(f"g{i}", world, "train", i, tuple(mix_key(i, k) for k in range(4)))
            for i in range(3)
        ]
        return facts([r for group in driver.run(requests) for r in group.rollouts])

    at_once = sample(0.0, False)
    assert sum(len(turns) > 1 for _, _, turns, _ in at_once) >= 4
    assert sample(0.02, False) == at_once
    assert sample(0.1, False) == at_once
    assert sample(0.0, True) == at_once


@pytest.mark.parametrize("where", ["search", "index"])
@pytest.mark.parametrize("retriever", ["slow", "slow-alone"])
def test_a_retriever_that_hangs_is_named_and_not_the_env(
    make_world: MakeWorld, tools: Any, monkeypatch: pytest.MonkeyPatch, where: str, retriever: str
):
    """In a search, or while it builds its index: for those too who wait for their turn."""
    release = threading.Event()

    def hang(*args: Any) -> Any:
        release.wait(30)
        return []

    world = make_world("toy", retriever)
    method = {"search": "search", "index": "__init__"}[where]
    monkeypatch.setattr(tools.SlowRetriever, method, hang)
    codec = ByteCodec()
    generator = SayingGenerator(codec.encode_model_text, [SEARCH, ANSWER])
    driver = RolloutDriver(generator, codec, replace(WIDE, env_timeout_s=0.4))
    request = RolloutRequest("g", world, "train", 0, (1, 2, 3))
    rollouts = driver.run([request])[0].rollouts
    release.set()
    for rollout in rollouts:
        failure = rollout.episode.failure
        assert failure is not None and failure.kind is FailureKind.TIMEOUT
        assert failure.owner == f"retriever '{retriever}' (plugin slow_tools)"
        assert f"retriever '{retriever}'" in failure.message and "0.4 s" in failure.message
    assert any("release.wait(30)" in (r.episode.failure or failure).detail for r in rollouts)
