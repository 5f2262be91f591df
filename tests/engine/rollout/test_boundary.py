"""Foreign code at its boundary: whatever it does, the run goes on and the right plugin is named."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from engine_toy import LIMITS, TOY_PLUGIN, SayingGenerator, run_within, say

from searchrl.config import build_config
from searchrl.core.episode import Failure, FailureKind
from searchrl.engine.rollout.dialogue import RolloutRequest
from searchrl.engine.rollout.records import rollout_record
from searchrl.engine.rollout.rollout import Rollout, RolloutDriver
from searchrl.engine.rollout.world import TaskWorld
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.errors import EnvironmentFailure, PluginError
from searchrl.plugins import Registry, load_plugins

FOREIGN_PLUGIN = TOY_PLUGIN.with_name("foreign_faults.py")
SEARCH = "<think>t</think>\n<search>mira</search>"
ANSWER = "<think>t</think>\n<answer>4</answer>"
ENV = "env 'foreign' (plugin foreign_faults)"
PROTOCOL = "protocol 'foreign-protocol' (plugin foreign_faults)"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_plugins([str(TOY_PLUGIN), str(FOREIGN_PLUGIN)], strict=True)


@pytest.fixture
def world(registry: Registry) -> Callable[..., TaskWorld]:
    def make(env: str = "foreign", *, reward_timeout_s: float | None = None, **task: Any):
        settings = {"reward": "env", **task}
        fault = {"fault": settings.pop("fault")} if "fault" in settings else {}
        limits = {"rollout": {"reward_timeout_s": reward_timeout_s}}
        config = build_config({"env": {"name": env, **fault}, **settings}, limits)
        return make_worlds(config, registry)[0]

    return make


def play(world: TaskWorld, turns: tuple[str, ...] = (SEARCH, ANSWER), **options: Any) -> Rollout:
    (rollout,), _ = say(world, turns, ByteCodec(), **options)
    json.dumps(rollout_record(rollout, "train", {}), allow_nan=False)
    return rollout


def failure_of(rollout: Rollout) -> Failure:
    failure = rollout.episode.failure
    assert failure is not None and rollout.scored.reward is None
    assert rollout.scored.failure is failure and "Traceback" in failure.detail
    return failure


class TestEnvironments:
    def test_sound_env_of_foreign_making_is_played(self, world: Any):
        rollout = play(world())
        assert rollout.scored.reward == 2.0 and rollout.episode.signals == {"a": 1.0}
        assert rollout.episode.passages[0].id == "p"

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("reward-nan", "step() returned nan as the reward; expected a finite number"),
            ("reward-inf", "step() returned inf as the reward"),
            ("reward-text", "step() returned '1.0' as the reward"),
            ("action-not-action", "info['action'] str; expected an Action"),
            ("action-without-queries", "info['action'] a search with the payload None"),
            ("action-answer-none", "info['action'] an answer with the payload None"),
            ("passages-of-text", "info['passages'] a list that holds str; expected Passage"),
            ("passages-text", "info['passages'] str; expected a list of Passage"),
            ("passage-without-text", "a Passage whose text is NoneType; expected text"),
            ("signal-not-number", "step() returned 'zz' as info['signals']['a']"),
            ("signal-nan", "step() returned nan as info['signals']['a']"),
            ("signal-not-named", "named a signal 7"),
            ("task-not-task", "info['task'] str; expected a Task"),
            ("task-answers-text", "info['task'] a Task whose answers are '4'"),
            ("task-index-text", "a Task whose index is '0' (str); expected an int"),
            ("task-meta-none", "a Task whose meta is None; expected a mapping"),
            ("task-slices-text", "a Task whose slices are 'old'; expected a tuple of texts"),
            ("task-slice-with-space", "the slice 'old words'; expected letters, digits"),
            ("task-slice-is-kind", "the slice 'old', which is its kind; leave it out"),
            ("task-question-none", "a Task whose question is None; expected text"),
        ],
    )
    def test_what_an_env_returns_is_checked_and_the_env_is_named(
        self, world: Any, fault: str, message: str
    ):
        """A NaN reward ended a run after the update, and `--reward env` blamed another plugin."""
        # A component that reads actions and answers: it would have been blamed.
        failure = failure_of(play(world(fault=fault, reward="env+searched+em")))
        assert failure.kind is FailureKind.ENVIRONMENT and failure.owner == ENV
        assert message in failure.message

    @pytest.mark.parametrize(
        ("fault", "message"),
        [
            ("num-tasks-missing", "no attribute 'num_tasks'"),
            ("num-tasks-raises", "LookupError: no such table"),
            ("num-tasks-exits", "SystemExit: 1"),
            ("num-tasks-none", "TypeError"),
        ],
    )
    def test_env_that_cannot_count_its_tasks_is_named(self, world: Any, fault: str, message: str):
        with pytest.raises(EnvironmentFailure) as raised:
            world(fault=fault).num_tasks("train")
        assert str(raised.value).startswith(ENV) and message in str(raised.value)

    def test_env_that_fails_to_close_takes_nothing_from_the_run(self, world: Any):
        made = world(fault="close-raises")
        with pytest.warns(UserWarning, match="env 'foreign'.*failed to close: OSError"):
            made.close()


class TestProtocols:
    @pytest.mark.parametrize("how", ["raises", "exits", "nonsense"])
    @pytest.mark.parametrize("method", ["parse", "final_answer", "format_score"])
    @pytest.mark.parametrize("env", ["foreign", "plain", "toy"])
    def test_protocol_at_fault_is_named_whoever_called_it(
        self, world: Any, env: str, method: str, how: str
    ):
        protocol = {"name": "foreign-protocol", "method": method, "how": how}
        failure = failure_of(play(world(env, protocol=protocol)))
        assert failure.kind is FailureKind.PROTOCOL and failure.owner == PROTOCOL
        said = {"raises": "raised RuntimeError: the grammar", "exits": "raised SystemExit"}
        assert f"{method}() {said.get(how, 'returned object')}" in failure.message or (
            method == "format_score" and "expected a finite number" in failure.message
        )

    def test_parser_that_fails_after_the_step_is_named_and_asks_for_no_further_turn(
        self, world: Any
    ):
        """The env has parsed by then: what it made of the turn is not kept."""
        protocol = {"name": "foreign-protocol", "method": "parse"}
        made = world("plain", protocol=protocol)
        (rollout,), generator = say(made, [SEARCH], ByteCodec())
        assert failure_of(rollout).owner == PROTOCOL
        assert len(generator.submitted) == 1 and len(rollout.episode.turns) == 1

    def test_forced_opening_of_a_broken_protocol_fails_its_group_alone(self, world: Any):
        protocol = {"name": "foreign-protocol", "method": "opening"}
        rollout = play(world(protocol=protocol), forced="search")
        assert failure_of(rollout).owner == PROTOCOL

    @pytest.mark.parametrize("how", ["raises", "exits", "nonsense"])
    def test_turn_that_cannot_be_rendered_is_not_the_scripts_fault(self, world: Any, how: str):
        protocol = {"name": "foreign-protocol", "method": "render_turn", "how": how}
        (rollout, _) = TestScripts.run(world(protocol=protocol), "raises")[:2]
        failure = failure_of(rollout)
        assert failure.kind is FailureKind.PROTOCOL and failure.owner == PROTOCOL
        assert "render_turn() r" in failure.message

    def test_protocol_that_hangs_inside_a_step_is_named_and_not_the_env(
        self, world: Any, monkeypatch: pytest.MonkeyPatch
    ):
        made, read = world("toy", protocol={"name": "foreign-protocol"}), []

        def parse(text: str) -> None:
            read.append(text)
            time.sleep(0.8)

        monkeypatch.setattr(made.protocol.inner, "parse", parse)
        rollout = play(made, limits=replace(LIMITS, env_timeout_s=0.3))
        failure = rollout.episode.failure
        assert failure is not None and failure.kind is FailureKind.TIMEOUT
        assert failure.owner == PROTOCOL and len(read) == 1, "again it would hang without a limit"

    @pytest.mark.parametrize("method", ["opening", "render_notice", "render_turn"])
    def test_protocol_at_fault_before_anything_starts_is_named(self, world: Any, method: str):
        with pytest.raises(PluginError, match=f"'foreign-protocol': {method}.. raised Runtime"):
            world("toy", protocol={"name": "foreign-protocol", "method": method})


class TestScripts:
    @staticmethod
    def run(world: TaskWorld, script: str, **request: Any) -> list[Rollout]:
        codec = ByteCodec()
        driver = RolloutDriver(ScriptedGenerator(codec), codec, LIMITS)
        requests = [
            RolloutRequest(name, world, "train", 0, (1, 2), script=world.script(name))
            for name in (script, "raises")
        ]
        return [rollout for group in driver.run(requests) for rollout in group.rollouts]

    @pytest.mark.parametrize(
        ("script", "message"),
        [
            ("raises", "act() raised IndexError: no second line"),
            ("exits", "act() raised SystemExit: 1"),
            ("none", "act() returned NoneType; expected a turn"),
            ("unmade", "it could not be made: LookupError: no script for this task"),
        ],
    )
    def test_script_at_fault_is_named_and_ends_its_own_episodes(
        self, world: Any, script: str, message: str
    ):
        for rollout in self.run(world(), script)[:2]:
            failure = failure_of(rollout)
            assert failure.kind is FailureKind.GENERATION
            assert failure.owner == f"script of {ENV}" and message in failure.message
            # What was played until then is whole.
            assert len(rollout.episode.turns) == len(rollout.trajectory.turns)


class TestRetrievers:
    @pytest.mark.parametrize("env", ["toy", "regulations"])
    @pytest.mark.parametrize(
        ("result", "message"),
        [
            ("none", "returned NoneType; expected one list of passages per query"),
            ("none-inside", "returned for a query NoneType; expected a list of Passage"),
            ("text", "returned for a query str; expected a list of Passage"),
            ("texts", "returned for a query a list that holds str; expected Passage"),
            ("passage-of-bytes", "a Passage whose text is bytes; expected text"),
            ("exits", "raised SystemExit: 1"),
        ],
    )
    def test_retriever_at_fault_is_named_and_not_the_env(
        self, world: Any, env: str, result: str, message: str
    ):
        retriever = {"name": "foreign-retriever", "result": result}
        failure = failure_of(play(world(env, retriever=retriever)))
        assert failure.kind is FailureKind.RETRIEVER
        assert failure.owner == "retriever 'foreign-retriever' (plugin foreign_faults)"
        assert message in failure.message


class TestScoring:
    def test_a_batch_of_episodes_with_a_hanging_reward_costs_about_one_time_out(self, world: Any):
        """Not one per episode: 64 of them at 60 s each were an hour of silence."""
        made = world("toy", reward="em+per_turn+hangs", reward_timeout_s=0.4)
        other = world("toy", reward="em+per_turn", reward_timeout_s=0.4)
        codec = ByteCodec()
        driver = RolloutDriver(SayingGenerator(codec.encode_plain, [ANSWER]), codec, LIMITS)
        requests = [
            RolloutRequest(f"g{i}", other if i == 3 else made, "train", i, (1, 2, 3, 4))
            for i in range(12)
        ]
        for index, rollout in run_within(4, driver, requests):  # one after another: 44 × 0.4 s
            failure = rollout.scored.failure
            assert rollout.episode.task.index == index
            assert rollout.scored.per_turn == {"per_turn": (0.5,)}
            assert (failure is None) == (index == 3)
            if failure is not None:
                assert failure.kind is FailureKind.TIMEOUT
                assert failure.owner == "reward 'hangs' of plugin toy_world"
                assert "time.sleep(HANG_S)" in failure.detail
