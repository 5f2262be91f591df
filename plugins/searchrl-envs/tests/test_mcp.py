"""The environment `mcp:`: sessions, calls, tasks, trust, and servers that others wrote."""

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fixtures.openai_server import OpenAIServer

from searchrl import ConfigError, DataError, EnvironmentFailure, make_env
from searchrl.cli import main
from searchrl.contracts import ANSWER, TOOL, Action, ToolCall

pytest.importorskip("mcp", reason="the extra mcp is not installed")
SERVER = f"{sys.executable} {Path(__file__).with_name('mcp_server.py')}"
NO_TOOLS = {"name": "tool-call", "tools": []}  # then the server is not asked for any


def write(folder: Path, *rows: dict) -> str:
    file = folder / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def play(env, *calls: tuple[str, dict]) -> list[str]:
    """The observations of an episode of calls."""
    env.reset(options={"split": "train", "index": 0})
    turns = [env.protocol.render_turn(Action(TOOL, ToolCall(*call))) for call in calls]
    return [env.step(turn)[0] for turn in turns]


@pytest.fixture(scope="module")
def env(tmp_path_factory):
    """Ten tasks; the protocol lists all tools of the server."""
    tasks = [{"question": f"What is {n} plus 1?", "answers": [n + 1]} for n in range(10)]
    path = write(tmp_path_factory.mktemp("mcp"), *tasks)
    return make_env(f"mcp:{SERVER}", questions=path, max_turns=11)


def test_every_tool_gives_an_observation_and_episodes_do_not_share_a_session(env):
    assert {tool["name"] for tool in env.protocol.tools} >= {"add", "hang", "search"}
    expected = [
        ("add", {"a": 1, "b": 2}, "\n3\n"),
        ("add", {"a": 1}, "error: TypeError("),
        ("nothing", {}, "error: KeyError("),
        ("fail", {}, "error: IndexError("),
        ("tags", {}, "seven"),
        ("picture", {}, "[image]"),
        ("search", {"query": "it"}, "found it"),
        ("count", {}, "call 1"),
        ("search", {"query": "it", "near": "here"}, "found it here"),
        ("search", {"queries": ["a", "b"]}, "argument 'queries'"),
    ]
    seen = play(env, *[one[:2] for one in expected])
    assert all(one[2] in told for one, told in zip(expected, seen, strict=True)), seen
    assert "</tool_call>" not in seen[4] and seen[4].count("</tool_response>") == 1
    assert "call 2" in play(env, ("count", {}), ("count", {}))[1]
    play(env, *[("count", {})] * 10)
    env.step("no turn")  # the last one that an episode has
    assert env._session._client is None
    play(env, ("count", {}))
    *_, reward, is_over, _, info = env.step(env.protocol.render_turn(Action(ANSWER, "1")))
    assert (reward, is_over, info["signals"]) == (1.0, True, {"shared_session": 0.0})
    assert env._session._client is None


def test_a_call_that_hangs_is_an_observation_and_a_server_that_ends_a_failure(env):
    play(env, ("count", {}))
    env._session.timeout_s = 0.5
    told = env.step(env.protocol.render_turn(Action(TOOL, ToolCall("hang"))))
    assert "error: no result within 0.5 s" in told[0]
    env._session.timeout_s = 30.0
    with pytest.raises(EnvironmentFailure, match="ended in a call of end"):
        play(env, ("end", {}))
    assert "call 1" in play(env, ("count", {}))[0]


def test_a_shared_session_goes_on_and_only_allowed_tools_are_listed_and_called(tmp_path):
    path = write(tmp_path, {"question": "How many?"})
    given = {"questions": path, "session": "shared", "allow": ["count"]}
    first, second = (make_env(f"mcp:{SERVER}", **given) for _ in range(2))
    assert [tool["name"] for tool in first.protocol.tools] == ["count"]
    assert "call 1" in play(first, ("count", {}))[0]
    told = play(second, ("add", {"a": 1, "b": 2}), ("count", {}))
    assert "no tool 'add'; there are count" in told[0] and "call 2" in told[1]
    answer = first.protocol.render_turn(Action(ANSWER, "3"))
    assert first.step(answer)[4]["signals"] == {"shared_session": 1.0}
    with pytest.raises(ConfigError, match="has no tool 'cuont'. Did you mean 'count'"):
        make_env(f"mcp:{SERVER}", questions=path, allow=["cuont"])


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (f"{SERVER} broken", "Connection closed; it wrote: no such database: shop.db"),
        (f"{SERVER} no-schema", "it lists no tools"),
        ("no-such-program x", "No such file or directory: 'no-such-program'"),
        ("http://127.0.0.1:9/mcp", "ConnectError"),
    ],
)
def test_a_server_that_does_not_begin_is_one_sentence(server, words):
    with pytest.raises(ConfigError) as caught:
        make_env(f"mcp:{server}", questions="any.jsonl")
    assert f"env mcp:{server}: " in str(caught.value) and words in str(caught.value)


def test_tasks_are_asked_for_split_and_checked(env, tmp_path):
    assert [env.num_tasks(split) for split in env.splits] == [8, 2]
    with pytest.raises(ConfigError, match="env.questions=FILE.*searchrl mcp tasks 'none at all'"):
        make_env("mcp:none at all", protocol=NO_TOOLS)
    bad = {"question": " "}, {"question": "a", "calls": [{}]}, {"question": "a", "answer": "b"}
    with pytest.raises(DataError, match=r"1: 'question' (?s:.*)2: 'calls'(?s:.*)3: 'answer'"):
        make_env("mcp:none", questions=write(tmp_path, *bad), protocol=NO_TOOLS)
    with pytest.raises(ConfigError, match="needs another protocol than 'act'"):
        make_env("mcp:none", questions=write(tmp_path, {"question": "a"}), protocol="act")


def test_a_run_of_somebody_else_starts_no_server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (folder := tmp_path / "run").mkdir()
    config = {"env": f"mcp:touch {tmp_path / 'trace'}", "policy": "scripted"}
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "provenance.json").write_text('{"plugins": []}')
    told = CliRunner().invoke(main, ["eval", str(folder)]).stderr
    assert "the code 'mcp:touch" in told and "--trust" in told
    assert not (tmp_path / "trace").exists()


def test_servers_that_others_wrote(tmp_path):
    for module in ("fastmcp_sqlite", "filesystem_mcp"):
        pytest.importorskip(module, reason=f"the server {module} is not installed")
    (tmp_path / "lamp.txt").write_text("The lamp is of brass.")
    with sqlite3.connect(tmp_path / "shop.db") as shop:  # which commits
        shop.execute("CREATE TABLE goods AS SELECT 'brass' AS metal")
    path, python = write(tmp_path, {"question": "Of what is the lamp?"}), sys.executable
    copied = f"cp {tmp_path}/shop.db {{scratch}} && exec {python} -m fastmcp_sqlite"
    command = f"sh -c '{copied} --allow-write {{scratch}}/shop.db'"
    sql = make_env(f"mcp:{command}", questions=path, protocol=NO_TOOLS)
    read = ("query", {"sql": "SELECT metal FROM goods"})
    drop = ("query", {"sql": "DELETE FROM goods", "readonly": False})
    assert "brass" not in play(sql, drop, read)[1] and "brass" in play(sql, read)[0]
    files = make_env(f"mcp:{python} -m filesystem_mcp {tmp_path}", questions=path)
    assert "of brass" in play(files, ("read_file", {"path": str(tmp_path / "lamp.txt")}))[0]


def test_drafts_that_fit_and_are_confirmed_are_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    out, call = tmp_path / "tasks.jsonl", {"name": "add", "arguments": {"a": 1, "b": 2}}
    good = {"question": "1 + 2?", "answers": ["3"], "calls": [call]}
    drafts = [good, good | {"question": "2 + 1?", "answers": ["4"]}, {"question": ""}]
    drafts += [good | {"calls": [{"name": "ad", "arguments": {}}]}]
    lines = "\n".join(map(json.dumps, drafts))
    replies = iter([f"Here:\n{lines}", f"Here:\n{lines}", "<think>3</think> 3.", "3", "No."])
    with OpenAIServer(lambda body: next(replies)) as asked:
        words = ["mcp", "tasks", SERVER, "--base-url", asked.url, "--model", "m"]
        words += ["--n", "11", "--out", str(out)]
        told = CliRunner().invoke(main, words)
        assert "2 tasks of 11, 2 lines left out." in told.stdout, told
        assert '"add"' in str(asked.bodies) and "Write 11 " in str(asked.bodies)
        assert "use --force" in CliRunner().invoke(main, words).stderr
        words.append("--force")
        told = CliRunner().invoke(main, [*words, "--judge", "other"])
        assert "1 tasks of 11, 2 lines left out, 1 not confirmed by other" in told.stdout, told
        assert "1 + 2?\nResults: 3" in asked.bodies[-2]["messages"][0]["content"]
        assert [json.loads(line) for line in out.read_text().split("\n")[:-1]] == [good]
        assert "begins: 'No.'" in CliRunner().invoke(main, words).stderr
    assert out.exists()
