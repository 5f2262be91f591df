"""Episodes of `examples`, and its rewards with values computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from searchrl_tasks.code import find_code, parse_code
from searchrl_tasks.env import AS_JSON, Examples, Expert
from searchrl_tasks.made import TOOLS
from searchrl_tasks.rewards import (
    make_auto,
    make_chat,
    make_code_style,
    make_code_syntax,
    make_function_call,
    make_published,
)
from searchrl_tasks.rows import parse_example

from searchrl import ConfigError, evaluate, load_plugins
from searchrl.contracts import ANSWER, SEARCH, TOOL, Action, Episode, EpisodeTurn, Task, ToolCall
from searchrl.core.drawing import find_drawings_problem
from searchrl.data import Row
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.tool_call import ToolCallProtocol
from searchrl.testing import assert_conforms

CALLS, PLAIN = ToolCallProtocol(tools=TOOLS), ThinkSearchAnswer()
RING = ToolCall("ring", {"name": "Ada", "hour": 9})


def begin(protocol: Any, kind: str) -> tuple[Examples, Task]:
    env = Examples(protocol=protocol, kinds=[kind], max_turns=2)
    return env, env.reset(options={"split": "test", "index": 0})[1]["task"]


def test_the_recorded_call_brings_the_recorded_response() -> None:
    env, task = begin(CALLS, "function_call")
    script = Expert(env, task, CALLS)
    call = script.act("")
    shown, reward, over, cut, _ = env.step(call)
    assert '{"number": ' in shown and (reward, over, cut) == (0.0, False, False)
    assert env.step(script.act(shown))[1:4] == (1.0, True, False)
    # Without the call, the recorded answer is worth nothing.
    env.reset(options={"split": "test", "index": 0})
    assert env.step(script.act(shown))[1] == 0.0
    with pytest.raises(Exception, match="Call reset"):
        env.step(call)


def test_another_call_is_told_so_and_turns_run_out() -> None:
    env, _ = begin(CALLS, "function_call")
    shown, _, over, cut, _ = env.step(CALLS.render_turn(Action(TOOL, ToolCall("book", {"a": 1}))))
    assert "Nothing is known of this call. Functions: " in shown and not over and not cut
    shown, _, over, cut, _ = env.step(CALLS.render_turn(Action(SEARCH, ("x",))))
    assert "no action 'search'" in shown and (over, cut) == (False, True)


def test_without_calls_the_answer_is_the_call_as_json() -> None:
    env, task = begin(PLAIN, "function_call")
    assert env.reset(options={"split": "test", "index": 0})[0].endswith(AS_JSON)
    turn = Expert(env, task, PLAIN).act("")
    assert env.step(turn)[1:3] == (1.0, True)
    assert json.loads(task.answers[0])["name"] == task.meta["call"].name
    env.reset(options={"split": "test", "index": 0})
    assert env.step(PLAIN.render_turn(Action(ANSWER, '{"name": "x"}')))[1:3] == (0.0, True)


def test_a_kind_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ConfigError, match="env.kinds: 'codes' is none of chat"):
        Examples(protocol=PLAIN, kinds=["codes"])


def coded(answer: str | None, gold: str = "total = first + second") -> Episode:
    return Episode(Task("t", "train", 0, "Add.", (gold,), kind="code"), final_answer=answer)


DONE = '```python\ndef f(a: int, b) -> int:\n    """Add."""\n    return a + b\n```'


@pytest.mark.parametrize(
    ("answer", "syntax", "style", "published"),
    [
        # Two of three hints; 61 characters: published 0.3 + 0.1 + 0.1 * 2/3 + 0.1, no shared word.
        (DONE, 1.0, (1 + 2 / 3 + 1) / 3, 0.5 + 0.2 / 3),
        # Of total, first, second it has one.
        ("total = 1 + 1", 1.0, 0.0, 0.3 - 0.2 + 0.4 / 3),
        ("total = 1 + 1 + 1 + 1", 1.0, 1 / 3, 0.3 + 0.4 / 3),
        ("```python\ndef f(:\n```", 0.0, 0.0, -0.3 - 0.2),
        ("```java\nint x;\n```", 0.0, 0.0, -0.5),
        ("I do not know.", 0.0, 0.0, -0.5),
        ("84", 0.0, 0.0, -0.5),
        ("", 0.0, 0.0, -0.5),
        (None, 0.0, 0.0, -0.5),
    ],
)
def test_code(answer: str | None, syntax: float, style: float, published: float) -> None:
    assert make_code_syntax()(coded(answer)) == syntax
    assert make_code_style()(coded(answer)) == pytest.approx(style)
    assert make_auto()(coded(answer)) == pytest.approx((syntax + style) / 2)
    assert make_published()(coded(answer)) == pytest.approx(published)


@pytest.mark.parametrize(
    "code",
    ["(" * 9000 + ")" * 9000, "-" * 19_000 + "1", "not " * 4900 + "1", "f" + "()" * 9000,
     "1" + "**1" * 6000, "a\0b", "9" * 6000, "'\ud800'", "x = 1\n" * 9000, "if 1:\n", "f'{" * 100],
)  # fmt: skip
def test_hostile_code_is_no_traceback(code: str) -> None:
    assert parse_code(code) is None
    assert make_auto()(coded(f"```\n{code}")) == 0.0


def test_code_is_parsed_and_never_run(tmp_path: Path, recwarn: Any) -> None:
    code = f"open({str(tmp_path / 'x')!r}, 'w')\nx = '\\d'"
    assert make_code_syntax()(coded(code)) == 1.0 and not [*tmp_path.iterdir()]
    assert not [*recwarn] and find_code("Run\n```sh\nls\n```\n```py\nx = 1\n```") == "x = 1\n"


def called(*calls: ToolCall, answer: str | None = None) -> Episode:
    row = {
        "messages": [
            {"role": "user", "content": "Ring Ada at 9"},
            {"role": "assistant", "tool_calls": [{"name": RING.name, "arguments": RING.arguments}]},
        ],
        "tools": TOOLS,
    }
    one = parse_example(Row(1, row))
    task = Task(
        "t", "train", 0, one.question, kind=one.kind, meta={"call": one.call, "tools": one.tools}
    )
    turns = tuple(EpisodeTurn("", Action(TOOL, call)) for call in calls)
    return Episode(task, turns, final_answer=answer)


@pytest.mark.parametrize(
    ("call", "parts", "published"),
    [
        (RING, 6.0, 1.0),  # 1.2, cut to 1
        # Name, hour: one type of two, one value of three (9, "9" and Ada).
        (ToolCall("ring", {"name": "Ada", "hour": "9"}), 4 + 1 / 2 + 1 / 3, 1.0),
        (ToolCall("ring", {"name": "Ada", "hour": True}), 4 + 1 / 2 + 1 / 3, 1.0),
        (ToolCall("ring", {"name": "Ada"}), 3 + 1 / 2 + 1 + 1 / 2, 1.0),
        (ToolCall("ring", {}), 3 + 0 + 1 + 0, 1.0),
        (ToolCall("book", {"seats": 2, "town": "Kelsey", "x": 1}), 2 + 1 + 2 / 3, 0.8),
        (ToolCall("sing", RING.arguments), 1.0, 0.4),
    ],
)
def test_function_call(call: ToolCall, parts: float, published: float) -> None:
    written = json.dumps({"name": call.name, "arguments": dict(call.arguments)})
    # The first call counts, as a turn or as the answer.
    for episode in (
        called(call, RING),
        called(answer=written),
        called(answer=f"```\n{written}```"),
    ):
        assert make_function_call()(episode) == pytest.approx(parts / 6)
        assert make_published()(episode) == pytest.approx(published)


def test_no_call_and_a_broken_one_score_nothing() -> None:
    score, published = make_function_call(), make_published()
    for answer, low in ((None, -0.5), ("Ring!", -0.5), ('{"name": "ring"}', -0.3), ("{", -0.3)):
        episode = called(answer=answer)
        assert (score(episode), published(episode)) == (0.0, low)


def chatted(answer: str | None) -> Episode:
    task = Task("t", "train", 0, "Which town is large?", ("Berlin is large",), kind="chat")
    return Episode(task, final_answer=answer)


@pytest.mark.parametrize(
    ("answer", "own", "published"),
    [
        # Which, town, large; Berlin, large: one of three, two of two.
        ("Berlin is large.", 1.0, 0.1 + 0.3),
        ("Berlin", 0.6, -0.5),
        (None, 0.0, -0.5),
        # Four runs of three words, two of them different; 6 words, of which 0.5 are different.
        ("so it is so it is", 3 / 4, 0.0),
        ("a b " * 1000, 2000 / 3999 * 2 / 1998, 0.1 - 0.3),
    ],
)
def test_chat(answer: str | None, own: float, published: float) -> None:
    assert make_chat()(chatted(answer)) == pytest.approx(own)
    assert make_published()(chatted(answer)) == pytest.approx(published)


def test_therefore_earns_nothing() -> None:
    plain, said = chatted("Berlin is large."), chatted("Therefore Berlin is large.")
    assert make_chat()(plain) == make_chat()(said)
    assert make_published()(plain) == make_published()(said)


def test_every_row_says_which_reward_it_was() -> None:
    auto = make_auto()
    search = Episode(Task("t", "train", 0, "Who?", ("Ada",), kind="lookup"), final_answer="Ada")
    names = {
        "auto: em": search,
        "auto: chat": chatted("Berlin is large."),
        "auto: function_call": called(RING),
        "auto: 0.5*code_syntax+0.5*code_style": coded(DONE),
    }
    for title, episode in names.items():
        (table,) = auto.draw_episode(episode)
        assert table.title == title and not find_drawings_problem([table])
        assert auto.applies(episode.task)
    assert auto(search) == 1.0
    assert [make_chat().applies(one.task) for one in names.values()] == [False, True, False, False]


@pytest.mark.parametrize("protocol", ["tool-call", "think-search-answer"])
def test_a_mixture_with_searches(protocol: str) -> None:
    registry = load_plugins(["searchrl_tasks"], entry_points=False)
    tasks = {"0": {"env": {"name": "examples"}, "protocol": {"name": protocol}},
             "1": {"env": {"name": "regulations"}, "weight": 2}}  # fmt: skip
    told = evaluate(
        {"tasks": tasks, "policy": "scripted", "eval": {"num_tasks": 24, "forced": False}},
        registry=registry,
    )
    values = {name: metric["value"] for name, metric in told.metrics.items()}
    assert values["examples/auto"] == values["examples/format"] == values["examples/em"] == 1.0
    assert values["regulations/em"] > 0.7 and "regulations/auto" not in values


def test_the_parts_pass_their_checks() -> None:
    assert_conforms("examples", kind="env", plugins=["searchrl_tasks"])
    for name in ("code_syntax", "code_style", "function_call", "chat", "auto", "published"):
        assert_conforms(name, kind="reward", plugins=["searchrl_tasks"])
