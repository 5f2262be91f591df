"""`openenv:` against a server of the real package: this file, run as a program."""

import os
import sys
import time
from collections.abc import Iterator
from subprocess import PIPE, Popen
from typing import Any

import pytest

env_server = pytest.importorskip("openenv.core.env_server", reason="openenv is not installed")
from fastmcp import FastMCP  # noqa: E402
from openenv.core.env_server.mcp_environment import MCPEnvironment  # noqa: E402

import searchrl  # noqa: E402
from searchrl.api_client import HttpServer  # noqa: E402
from searchrl.contracts import ANSWER, TOOL, Action, ToolCall  # noqa: E402

HERE = ["searchrl_envs"]


class Guess(env_server.Action):
    number: int


class Hint(env_server.Observation):
    hint: str
    tries: int = 0


class Guessing(env_server.Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state: Any = None

    def reset(self, seed: int = 0, episode_id: Any = None, who: str = "you", **_: Any) -> Hint:
        self.secret, self.tries = seed % 8, 0
        return Hint(hint=f"Guess, {who}.")

    def step(self, action: Guess, timeout_s: Any = None, **_: Any) -> Hint:
        if action.number == 9:
            time.sleep(20)
        self.tries += 1
        is_right = action.number == self.secret
        return Hint(hint="", tries=self.tries, reward=1 if is_right else None, done=is_right)


class Tools(MCPEnvironment):
    state: Any = None

    def __init__(self) -> None:
        server = FastMCP("sums")
        server.tool(lambda a, b: a + b, name="add", description="The sum.")
        super().__init__(server)

    def reset(self, **_: Any) -> Any:
        return env_server.Observation()

    def _step_impl(self, action: Any, **_: Any) -> Any:
        raise ValueError


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Popen([sys.executable, __file__], stdout=PIPE, text=True) as process:
        os.environ["SERVER"] = str(process.pid)
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@pytest.fixture
def env(url: str) -> Iterator[Any]:
    env = searchrl.make_env(
        f"openenv:{url}/guess", plugins=HERE, timeout_s=2.0, reset={"who": "Ada"}
    )
    assert env.reset(options={"split": "test", "index": 1})[0] == "hint: Guess, Ada.\ntries: 0"
    yield env  # the seed is 4
    env.close()


def say(env: Any, tool: str, **arguments: Any) -> Any:
    return env.step(env.protocol.render_turn(Action(TOOL, ToolCall(tool, arguments))))[:3]


def test_typed_actions_are_a_tool_and_observations_words(env: Any) -> None:
    assert '"act", "description": "Guessing environment."' in env.protocol.instruction
    told, reward, is_over = say(env, "act", number=1)
    assert "\n1\n" in told and (reward, is_over) == (0, False)
    assert "do not fit" in say(env, "act", number="x")[0]
    assert "There are the tools act," in say(env, "look", number=4)[0]
    assert say(env, "act", number=4)[1:] == (1, True)


def test_a_server_that_hangs_fails_its_episode_alone(env: Any, url: str) -> None:
    other: Any = searchrl.make_env(f"openenv:{url}/guess", plugins=HERE)
    other.reset(options={"split": "test", "index": 1})
    with pytest.raises(searchrl.EnvironmentFailure, match="no answer within 2 s"):
        say(env, "act", number=9)
    assert "\n1\n" in say(other, "act", number=3)[0]
    with pytest.raises(searchrl.EnvironmentFailure, match="closed the session"):
        say(env, "act", number=4)  # in a new session it would be another episode
    env.reset(options={"split": "test", "index": 1})
    assert say(env, "act", number=4)[1] == 1


def test_tools_of_mcp_are_tools(url: str) -> None:
    env: Any = searchrl.make_env(f"openenv:{url}/tools", plugins=HERE)
    env.reset(options={"split": "test", "index": 1})
    assert "3" in say(env, "add", a=1, b=2)[0] and "validation error" in say(env, "add", a=1)[0]
    assert env.step(env.protocol.render_turn(Action(ANSWER, "3")))[2]
    env.close()


def test_a_server_that_is_killed_or_not_there_is_named(env: Any, url: str) -> None:
    """The last test: it kills the server."""
    os.kill(int(os.environ["SERVER"]), 9)
    with pytest.raises(searchrl.EnvironmentFailure, match=f"openenv:{url}/guess: .*in step"):
        say(env, "act", number=4)
    for address in (url, "127.0.0.1", "http://a b"):
        with pytest.raises(searchrl.ConfigError, match="start the server, look at the address"):
            searchrl.make_env(f"openenv:{address}", plugins=HERE)


if __name__ == "__main__":
    from fastapi import FastAPI

    app = FastAPI()
    app.mount("/guess", env_server.create_app(Guessing, Guess, Hint, max_concurrent_envs=64))
    types = (env_server.CallToolAction, env_server.CallToolObservation)
    app.mount("/tools", env_server.create_app(Tools, *types))
    http = HttpServer("127.0.0.1", 0)
    print(http.address, flush=True)
    http.make(app, ws="auto").run([http.socket])
