"""Where an instance of an environment lives: one thread, for all that looks at it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from engine_toy import SayingGenerator

from searchrl.core.drawing import Text
from searchrl.engine.model.policy import Policy
from searchrl.engine.rollout.dialogue import Limits, RolloutRequest
from searchrl.engine.rollout.drawing import draw_rollout
from searchrl.engine.rollout.rollout import RolloutDriver
from searchrl.engine.sampling.scripted import ByteCodec, ScriptedGenerator
from searchrl.tool_calls import DeadlineExceeded

SEARCH_MIRA = "<think>t</think>\n<search>mira</search>"
ANSWER = "<think>t</think>\n<answer>4</answer>"
WIDE = Limits(1000, 1000, 10_000)


def test_an_instance_is_made_reset_stepped_and_closed_in_one_thread(toy_world: Any, policy: Policy):
    """A connection of sqlite3 refuses any other: episodes failed, or earned nothing."""
    world = toy_world()
    make, threads = world.make_env, dict[int, set[int]]()

    def watch() -> Any:
        env = make()
        seen = threads.setdefault(id(env), {threading.get_ident()})

        def note(call: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *args, **named: (seen.add(threading.get_ident()), call(*args, **named))[1]

        env.reset, env.step, env.close = map(note, (env.reset, env.step, env.close))
        return env

    world.make_env = watch
    world._idle.clear()
    for keys in ((1,), (1, 2, 3), (1, 2)):
        for turns in ([SEARCH_MIRA, ANSWER], [ANSWER]):
            driver = RolloutDriver(
                SayingGenerator(policy.renderer.encode_model_text, turns), policy.renderer, WIDE
            )
            driver.run([RolloutRequest("g", world, "train", 0, keys)])
            assert world.num_tasks("train") and world.look_at("train", 0)
    world.close()
    assert len(threads) == 3 and {len(seen) for seen in threads.values()} == {1}
    assert threading.get_ident() not in set.union(*threads.values())


def test_what_looks_at_an_instance_is_asked_in_its_thread(toy_world: Any):
    """`act` and `draw_episode` were called in another thread, where sqlite3 refuses them."""
    world = toy_world()
    make = world.make_env

    def make_drawing() -> Any:
        env = make()
        env.thread = threading.get_ident()
        env.draw_episode = lambda episode: [Text("here", str(threading.get_ident() == env.thread))]
        return env

    class Script:
        def __init__(self, env: Any, task: Any, protocol: Any) -> None:
            self.env = env

        def act(self, observation: str) -> str:
            assert threading.get_ident() == self.env.thread
            return ANSWER

    world.make_env = make_drawing
    world._idle.clear()
    codec = ByteCodec()
    driver = RolloutDriver(
        ScriptedGenerator(codec.encode_plain, codec.decode), codec, WIDE, deterministic=True
    )
    (group,) = driver.run([RolloutRequest("g", world, "train", 0, (1, 2), script=Script)])
    assert [rollout.episode.failure for rollout in group.rollouts] == [None, None]
    (drawing,) = draw_rollout(world, group.rollouts[0].episode)
    assert drawing["text"] == "True"


def test_an_instance_whose_thread_hangs_is_not_taken_again(toy_world: Any):
    world = toy_world()
    env = world.acquire()
    env.home.late = DeadlineExceeded("a neighbour", 1.0)
    world.release(env)
    world.close()
    world.release(env)
    assert world.acquire() is not env and world.num_tasks("train")
