"""What is asked for, what an episode ends as, and who is said to have failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from engine_toy import LIMITS, SayingGenerator

from searchrl.core.episode import Failure, FailureKind, Passage, StopReason
from searchrl.core.trajectory import Origin
from searchrl.engine.rollout.boundary import anonymous_task, classify
from searchrl.engine.rollout.dialogue import Dialogue, RolloutRequest
from searchrl.engine.rollout.guarded import BatchSizes, GuardedRetrievers, _Asked
from searchrl.engine.rollout.text_turns import TextTurns
from searchrl.engine.sampling.scripted import ByteCodec
from searchrl.errors import (
    BudgetSpent,
    EndpointFailure,
    EnvironmentFailure,
    GenerationFailure,
    ProtocolFailure,
    RetrieverFailure,
)
from searchrl.tool_calls import CallLock, DeadlineExceeded


def test_the_index_of_a_request_is_no_option_and_a_plain_env_needs_none(toy_world: Any) -> None:
    world = toy_world()
    request = RolloutRequest("g", world, "test", 3, (1,), {"index": 9, "level": 2})
    assert request.reset_options == {"split": "test", "index": 3, "level": 2}
    bare = RolloutRequest("g", world, "test", None, (1,), {"level": 2})
    assert bare.reset_options == {"split": "test", "level": 2}
    task = anonymous_task("plain", bare.reset_options, "why?")
    assert (task.id, task.index, task.question) == ("plain/test/-1", -1, "why?")


@pytest.mark.parametrize(
    ("more", "origin"),
    [
        ({}, Origin.SAMPLED),
        ({"has_logps": False}, Origin.DEMONSTRATION),
        ({"script": lambda *_: None}, Origin.DEMONSTRATION),
    ],
)
def test_without_log_probs_it_is_a_demonstration(more: Any, origin: Origin, toy_world: Any) -> None:
    request = RolloutRequest("g", toy_world(), "train", 0, (1,), **more)
    assert Dialogue(request, 0).trajectory.origin is origin


def test_a_lost_dialogue_is_the_generators_fault_and_the_first_failure_is_told(
    toy_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = toy_world()
    request = RolloutRequest("g", world, "train", 0, (1, 2), step=5)
    lost = Dialogue(request, 1).freeze(ByteCodec())
    assert (lost.step, lost.stop_reason) == (5, StopReason.FAILED)
    assert lost.failure is not None and lost.failure.kind is FailureKind.GENERATION

    def fail(texts: list[str]) -> float:
        raise ProtocolFailure("no score")

    monkeypatch.setattr(world.protocol, "format_score", fail)
    dialogue = Dialogue(request, 0)
    dialogue.fail(EnvironmentFailure("gone"))
    first = dialogue.freeze(ByteCodec()).failure
    assert first is not None and first.kind is FailureKind.ENVIRONMENT
    answered = Dialogue(request, 0)
    answered.stop = StopReason.ANSWERED
    episode = answered.freeze(ByteCodec())
    assert episode.stop_reason is StopReason.FAILED and episode.failure is not None
    assert episode.failure.kind is FailureKind.PROTOCOL


def test_siblings_keep_their_keys_where_one_failed_at_its_reset(toy_world: Any) -> None:
    opened: list[Any] = []

    class Noting(SayingGenerator):
        def open(self, prompt_ids: Any, n: int, rng_keys: Any, experts: Any = None) -> Any:
            opened.append(rng_keys)
            return super().open(prompt_ids, n, rng_keys)

    generator = Noting(ByteCodec().encode_plain, [])
    request = RolloutRequest("g", toy_world(), "train", 0, (7, 8, 9))
    dialogues = [Dialogue(request, sample) for sample in range(3)]
    live = TextTurns(generator, ByteCodec(), LIMITS).open(request, dialogues[1:])
    assert opened == [[8, 9]] and list(live.values()) == dialogues[1:]


def late(owner: str) -> DeadlineExceeded:
    return DeadlineExceeded(owner, 1.0, "where it hangs")


def waited() -> RetrieverFailure:
    failure = RetrieverFailure("it waited")
    failure.__cause__ = late("retriever")
    return failure


@pytest.mark.parametrize(
    ("error", "kind", "owner"),
    [
        (late("env"), FailureKind.TIMEOUT, "env"),
        (late("retriever"), FailureKind.TIMEOUT, "retriever"),
        (late("protocol"), FailureKind.TIMEOUT, "protocol"),
        (late("a tool of its own"), FailureKind.TIMEOUT, "env"),
        (waited(), FailureKind.TIMEOUT, "retriever"),
        (RetrieverFailure("gone"), FailureKind.RETRIEVER, "retriever"),
        (ProtocolFailure("odd"), FailureKind.PROTOCOL, "protocol"),
        (BudgetSpent("spent"), FailureKind.BUDGET, "player"),
        (GenerationFailure("nan"), FailureKind.GENERATION, "player"),
        (EndpointFailure("down"), FailureKind.GENERATION, "player"),
        (KeyError("step"), FailureKind.ENVIRONMENT, "env"),
    ],
)
def test_who_failed(error: Exception, kind: FailureKind, owner: str) -> None:
    world: Any = SimpleNamespace(who={kind: kind for kind in ("env", "retriever", "protocol")})
    failure: Failure = classify(error, world, "player")
    assert (failure.kind, failure.owner) == (kind, owner)
    assert (failure.detail == "where it hangs") == (kind is FailureKind.TIMEOUT)


@pytest.mark.parametrize("key", [0, 5, (1 << 29) - 1, (1 << 29) + 5, (1 << 64) - 1])
def test_no_seed_is_in_two_splits_and_siblings_share_theirs(toy_world: Any, key: int) -> None:
    world, part = toy_world(), 1 << 29
    splits = ("train", "validation", "test", "other")
    seeds = [RolloutRequest("g", world, one, 0, (key, 9)).env_seed for one in splits]
    assert seeds == [place * part + key % part for place in (0, 1, 2, 2)]


def test_searches_of_another_k_wait_and_no_more_are_asked_than_a_batch_holds() -> None:
    asked: list[Any] = []

    class Noting:
        def search(self, queries: Any, k: int) -> Any:
            asked.append((list(queries), k))
            return [[Passage(f"{query}{number}", "") for number in range(k)] for query in queries]

    sizes = BatchSizes(3, {1: 1.0})
    guard = GuardedRetrievers(lambda passages: Noting(), "it", CallLock(), sizes=sizes)  # type: ignore
    retriever: Any = guard([])
    other, two, one, late = (
        _Asked(list(queries), k) for queries, k in (("a", 2), ("bc", 1), ("d", 1), ("e", 1))
    )
    retriever._asked += [other, two, one, late]
    assert [p.id for (p,) in retriever.search(["own"], 1)] == ["own0"]
    assert asked == [(["own", "b", "c", "d"], 1)]
    assert two.outcome is not None and other.outcome is late.outcome is None
    assert [p.id for (p,) in two.outcome.value] == ["b0", "c0"]  # type: ignore[union-attr]
    assert retriever._asked == [other, late]


@pytest.mark.parametrize(
    ("took_s", "timeout_s", "most"),
    [
        ([1.0], None, 2),
        ([1.0, 1.49], None, 4),
        ([1.0, 1.5], None, 1),
        ([1.0, 1.0, 1.5], None, 2),
        ([0.25], 1.0, 1),
        ([0.24, 0.25], 1.0, 1),
        ([0.24, 0.24], 1.0, 4),
    ],
)
def test_batches_grow_as_long_as_that_saves_time(
    took_s: list[float], timeout_s: float | None, most: int
) -> None:
    """Twice the queries may take less than 1.5 times as long, and a quarter of the time limit."""
    sizes = BatchSizes()
    for took in took_s:
        sizes.learn(sizes.most, took, timeout_s)
    assert sizes.most == most
    sizes.learn(most - 1, 0.0, None)  # not full
    assert sizes.most == most
