"""`serve-env`: raw turns over the client of openenv, and over ours; its key and its limit."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

core = pytest.importorskip("openenv.core", reason="openenv is not installed")
from searchrl_envs.serve import make_app, serve_env  # noqa: E402

import searchrl  # noqa: E402
from searchrl.api_client import HttpServer  # noqa: E402
from searchrl.contracts import TOOL, Action, ToolCall  # noqa: E402

TURNS = ("<search>broadcast team</search>", "no turn", "<answer>not regulated</answer>")
KEY = "Bearer sk-11111"
CLOSED: list[str] = []


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    def make() -> Any:
        env = searchrl.make_env("regulations").unwrapped
        env.close = partial(CLOSED.append, env.name)  # type: ignore[method-assign]
        return env

    http = HttpServer("127.0.0.1", 0, key="sk-11111")
    server = http.make(make_app("regulations", make, 3, 60.0), ws="auto")
    thread = threading.Thread(target=server.run, args=([http.socket],))
    thread.start()
    yield http.address
    server.should_exit = True
    thread.join()


def connect(url: str, key: str = KEY) -> Any:
    return core.GenericEnvClient(url, headers={"Authorization": key}).sync()


def test_episodes_over_the_wire_are_those_of_the_environment(url: str) -> None:
    env: Any = searchrl.make_env("regulations")
    rewards = []
    with connect(url) as session:
        for index in range(8):
            prompt, _ = env.reset(options={"split": "test", "index": index})
            text = session.reset(split="test", index=index).observation["text"]
            assert text == f"{env.get_wrapper_attr('protocol').instruction}\n\n{prompt}"
            for turn in TURNS:
                observation, reward, *ends, _ = env.step(turn)
                told = session.step({"text": turn})
                assert (told.observation["text"], told.reward) == (observation, reward)
                assert told.done == any(ends)
            rewards.append(reward)
    assert {0.0, 1.0} == {*rewards}


def test_a_key_is_asked_for_and_more_sessions_are_refused(url: str) -> None:
    with pytest.raises(ConnectionError, match="401"):
        connect(url, "Bearer sk-22222").connect()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(url)).reset()
        with pytest.raises(RuntimeError, match="at capacity"), connect(url) as session:
            session.reset()


def test_an_error_ends_the_environment_and_the_session_goes_on(url: str) -> None:
    with connect(url) as session:
        before = len(CLOSED)
        with pytest.raises(RuntimeError, match="has no split 'none'"):
            session.reset(split="none")
        assert session.reset(split="test", index=0).observation["text"]
        assert len(CLOSED) == before + 1


def test_our_own_client_plays_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAY_KEY", "sk-11111")
    env: Any = searchrl.make_env(f"openenv:{url}", plugins=["searchrl_envs"], key_env="PLAY_KEY")
    prompt, _ = env.reset(options={"split": "test", "index": 3})
    answer = Action(TOOL, ToolCall("act", {"text": "<answer>B175</answer>"}))
    assert "handbook" in prompt and env.step(env.protocol.render_turn(answer))[1:3] == (1.0, True)
    env.close()


def test_what_cannot_be_served_is_one_sentence() -> None:
    for words, problem in (
        ("regulations --set env.max_turnz=3", "max_turns"),
        ("regulations --set max_turns=3", "max_turns=3: expected a key such as env.max_turns"),
        ("regulations --set env=3", "--set env=3: expected a key"),
        ("regulations --key-env NO_SUCH_KEY", "NO_SUCH_KEY: this environment variable is not set"),
    ):
        error = CliRunner().invoke(serve_env, words.split()).exception
        assert isinstance(error, searchrl.SearchRLError) and problem in str(error)
