"""`searchrl play`: shortcuts, raw turns, piped input and its end."""

import json
from typing import Any

from click.testing import Result
from command_line import call, succeed
from train_toy import TOY_PLUGIN

from searchrl.config import build_config
from searchrl.core.episode import ToolCall
from searchrl.engine.rollout.worlds import make_worlds
from searchrl.plugins import load_plugins
from searchrl.programs.play import read_turn
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.act import ThinkAct
from searchrl.protocols.tool_call import ToolCallProtocol

PLAIN = ThinkSearchAnswer()
TOOLS = ("--protocol", "tool-call", "--set", "protocol.tools=[{name: search}, {name: now}]")


def play(text: str, *args: object) -> Result:
    return succeed("play", "--env", "regulations", *args, typed=text)


def turns(*lines: str, protocol: Any = PLAIN) -> tuple[list[str], list[str]]:
    rest = iter(lines)
    read: list[str] = []
    complaints: list[str] = []
    while (turn := read_turn(protocol, lambda: next(rest, None), complaints.append)) is not None:
        read.append(turn)
    return read, complaints


def gold(index: int) -> str:
    world = make_worlds(build_config({}), load_plugins(entry_points=False))[0]
    _, info = world.ask(lambda env: env.reset(options={"split": "test", "index": index}))
    return str(info["task"].answers[0])


def test_shortcuts_are_written_by_the_protocol() -> None:
    read, _ = turns("s library hours", "a 16:45")
    assert read == [
        "<think></think>\n<search> library hours </search>",
        "<think></think>\n<answer> 16:45 </answer>",
    ]
    # Words that only begin like a shortcut are none.
    assert turns("s", "", "so it goes", "")[0] == ["s", "so it goes"]


def test_a_tool_is_called_by_its_name_and_json() -> None:
    lines = ('c add {"a": 1}', "c now", "c add 1 2", "c add [1]")
    read, complaints = turns(*lines, protocol=ToolCallProtocol())
    calls = [ToolCallProtocol().parse(turn).payload for turn in read]
    assert calls == [ToolCall("add", {"a": 1}), ToolCall("now", {})]
    assert len(complaints) == 2 and "c TOOL {JSON} calls a tool" in complaints[0]
    assert len(turns("c now")[1]) == 1


def test_shortcuts_are_shown_where_the_protocol_has_such_turns() -> None:
    plain, tools = play("").stdout, play("", *TOOLS).stdout
    assert "s WORDS searches" in plain and "c TOOL" not in plain
    assert "c TOOL {JSON} calls a tool" in tools and '"name": "now"' in tools


def test_raw_turn_ends_with_its_closing_tag_or_an_empty_line() -> None:
    read, _ = turns("<think>a", "b</think>", "<search>x</search>", "", "no tag", "", "last")
    assert read == ["<think>a\nb</think>\n<search>x</search>", "no tag", "last"]


def test_right_answer_gets_every_score() -> None:
    shown = play(f"s anything\na {gold(4)}\n", "--index", "4").stdout
    assert "<information>" in shown and "The episode is over (answered)." in shown
    scores = next(line for line in shown.splitlines() if "scores" in line)
    for part in ("reward 2", "format 1", "em 1", "searched 1", "searches 1"):
        assert part in scores


def test_end_of_input_ends_politely() -> None:
    for text in ("", "s library\n"):
        assert "The episode is not finished" in play(text).stdout


def test_json_keeps_the_dialogue_off_stdout() -> None:
    result = play("a nothing\n", "--index", "0", "--json")
    printed = json.loads(result.stdout)
    assert printed["final_answer"] == "nothing" and printed["scores"]["searches"] == 0
    assert printed["question"] in result.stderr


def test_environment_that_fails_is_no_success() -> None:
    flags = ("--env", "toy-faulty", "--set", "env.fault=step-raises")
    result = call("play", "--plugin", TOY_PLUGIN, *flags, typed="a 1\n")
    assert result.exit_code == 3
    assert "the step of this env is broken" in result.output and "toy_world.py" in result.output


def test_acting_has_a_shortcut_where_the_protocol_has_acts() -> None:
    assert turns("d right", "d up", protocol=ThinkAct())[0] == ["<act>right</act>", "<act>up</act>"]
    lake = "play --env gym:FrozenLake-v1 --reward env --index 0 --json"
    moves = "down down right right down right"
    typed = "".join(f"d {move}\n" for move in moves.split())
    result = succeed(*lake.split(), "--set", "env.make.is_slippery=false", typed=typed)
    assert "d WORDS acts" in result.stderr and "s WORDS" not in result.stderr
    assert json.loads(result.stdout)["reward"] == 1.0 and "d WORDS" not in play("").output
