"""The tool-call protocol: calls read and written, and what a model may write in place of one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import SOUP

from searchrl.core.episode import ANSWER, INVALID, SEARCH, TOOL, Action, ToolCall
from searchrl.errors import ConfigError
from searchrl.protocols.tool_call import MAX_DEPTH, ToolCallProtocol, load_search_tool

CALCULATOR = {
    "name": "calculator",
    "description": "Arithmetic.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
}
SEARCH_TOOL = load_search_tool()
P = ToolCallProtocol(tools=[CALCULATOR, SEARCH_TOOL])
ANSWER_TURN = "<think>\nSo it is.\n</think>\n\n<answer> 42 </answer>"


def call_turn(text: str) -> str:
    return f"<think>\nhm\n</think>\n\n<tool_call>\n{text}\n</tool_call>"


CALL_TURN = call_turn('{"name": "calculator", "arguments": {"expression": "6*7"}}')

TEXTS = st.one_of(st.text(max_size=12), SOUP)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(
    ToolCall,
    TEXTS.filter(lambda name: name.strip() and name != SEARCH),
    st.dictionaries(TEXTS, JSON_VALUES, max_size=3),
)


class TestInstruction:
    def test_tools_are_listed_as_the_models_templates_list_them(self):
        assert P.instruction.index("<tools>\n") < P.instruction.index("\n</tools>")
        listed = P.instruction.split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
        functions = [json.loads(line) for line in listed]
        assert [f["function"] for f in functions] == [CALCULATOR, SEARCH_TOOL]
        assert {f["type"] for f in functions} == {"function"}
        for tag in ("<think>", "<tool_call>", "<tool_response>", "<answer>"):
            assert tag in P.instruction

    def test_without_tools_there_is_a_search(self):
        assert ToolCallProtocol().tools == (SEARCH_TOOL,)
        assert '"name": "search"' in ToolCallProtocol().instruction

    def test_an_instruction_of_ones_own_says_where_the_tools_go(self):
        own = ToolCallProtocol(tools=[CALCULATOR], instruction='Use {tools}; write {"name": ...}.')
        line = json.dumps({"type": "function", "function": CALCULATOR})
        assert own.instruction == f'Use {line}; write {{"name": ...}}.'

    @pytest.mark.parametrize(
        ("tools", "message"),
        [
            (["calculator"], "tools.0: Input should be a valid dict"),
            ([CALCULATOR, {"name": " "}], "tools.1.name: String should match"),
            ([{"name": "x", "schema": {}}], "tools.0"),
            ([{"name": "x", "parameters": []}], "tools.0.parameters: Input should be a valid dict"),
            ([{"name": "x", "parameters": {"a": {1}}}], "tools.0.parameters.a"),
        ],
    )
    def test_tools_that_cannot_be_listed_are_named(self, tools: Any, message: str):
        with pytest.raises(ConfigError, match=f"protocol.{message}"):
            ToolCallProtocol(tools=tools)


class TestParse:
    @pytest.mark.parametrize(
        ("arguments", "queries"),
        [
            ({"query": " chess club "}, ("chess club",)),
            ({"queries": ["a", "", " b\nc "]}, ("a", "b\nc")),
        ],
    )
    def test_a_call_of_search_is_a_search(self, arguments, queries):
        turn = call_turn(json.dumps({"name": "search", "arguments": arguments}))
        assert P.parse(turn) == Action(SEARCH, queries)

    def test_any_other_call_is_a_tool_listed_or_not(self):
        assert P.parse(CALL_TURN) == Action(TOOL, ToolCall("calculator", {"expression": "6*7"}))
        other = call_turn('{"arguments": {}, "name": "weather"}')
        assert P.parse(other) == Action(TOOL, ToolCall("weather", {}))

    def test_an_answer(self):
        assert P.parse(ANSWER_TURN) == Action(ANSWER, "42")
        assert P.final_answer([CALL_TURN, ANSWER_TURN]) == "42"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("{", "not valid JSON: Expecting property name"),
            ('{"name": "a", "arguments": {}} {"name": "b", "arguments": {}}', "Extra data"),
            ('{"name": "a", "arguments": {"x": NaN}}', "Out of range float"),
            ('{"name": "a", "arguments": {"x": %s}}' % ("9" * 9999), "Exceeds the limit"),
            ('{"name": "a", "arguments": {"x": "\\ud800"}}', "surrogates not allowed"),
            ("[" * 200_000, "nested too deeply"),
            (
                '{"name": "a", "arguments": {"x": %s}}' % ("[" * 99 + "]" * 99),
                f"{MAX_DEPTH} levels at most",
            ),
            ("[]", "one JSON object"),
            ('{"name": "a"}', "one JSON object"),
            ('{"name": "a", "arguments": {}, "id": 1}', "one JSON object"),
            ('{"name": 3, "arguments": {}}', 'nothing else, not {"name": 3'),
            ('{"name": "a", "arguments": "{}"}', "one JSON object"),
            ('{"name": "search", "arguments": {}}', "The tool search takes"),
            ('{"name": "search", "arguments": {"query": ["a"]}}', "The tool search takes"),
            ('{"name": "search", "arguments": {"query": "a", "k": 3}}', "The tool search takes"),
            ('{"name": "search", "arguments": {"query": " "}}', "no words to search for"),
            ("", "<tool_call> block is empty"),
        ],
    )
    def test_a_call_that_cannot_be_read_says_why(self, text: str, reason: str):
        action = P.parse(call_turn(text))
        assert (action.kind, action.payload) == (INVALID, None)
        assert reason in action.reason and len(action.reason) < 250

    @pytest.mark.parametrize(
        ("turn", "reason"),
        [
            (CALL_TURN + CALL_TURN, "one tool call or one answer, not several"),
            (CALL_TURN + ANSWER_TURN, "one tool call or one answer, not several"),
            (CALL_TURN + "<tool_response>42</tool_response>", "Only the environment may write"),
            (call_turn('{"name": "a", "arguments": {"x": "<answer>"}}'), "holds another tag"),
            ("<tool_call>{<think>}</tool_call>", "holds another tag"),
            ('<tool_call>{"name": "a"', "was not closed with </tool_call>"),
            ("The answer is 42.", 'write <tool_call>{"name": ..., "arguments": {...}}'),
        ],
    )
    def test_an_invalid_turn_says_why(self, turn: str, reason: str):
        action = P.parse(turn)
        assert action.kind == INVALID and reason in action.reason

    def test_the_deepest_call_that_is_read_can_be_written_again(self):
        depth = MAX_DEPTH - 2  # the call and its arguments are two
        value: Any = 1
        for _ in range(depth):
            value = [value]
        action = Action(TOOL, ToolCall("a", {"x": value}))
        assert P.parse(P.render_turn(action)) == action
        too_deep = call_turn(json.dumps({"name": "a", "arguments": {"x": [value]}}))
        assert "nested too deeply" in P.parse(too_deep).reason


class TestVerdict:
    @pytest.mark.parametrize(
        ("turns", "score"),
        [
            ([ANSWER_TURN], 1.0),
            ([CALL_TURN, CALL_TURN, ANSWER_TURN], 1.0),
            (["<think>\n\n</think>\n\n" + CALL_TURN, ANSWER_TURN], 1.0),
            ([CALL_TURN.partition("\n\n")[2], ANSWER_TURN], 0.5),
            ([call_turn("{}"), ANSWER_TURN], 0.5),
            ([call_turn('{"name": "a", "arguments": {"x": NaN}}'), ANSWER_TURN], 0.5),
            ([CALL_TURN + "<tool_response>42</tool_response>", ANSWER_TURN], 0.5),
            ([CALL_TURN], 0.0),
            ([ANSWER_TURN, ANSWER_TURN], 0.0),
            ([CALL_TURN + ANSWER_TURN], 0.0),
            ([], 0.0),
        ],
    )
    def test_order_and_readable_calls(self, turns: list[str], score: float):
        assert P.format_score(turns) == score


class TestWriting:
    def test_the_layout_is_that_of_the_models_templates(self):
        action = Action(TOOL, ToolCall("calculator", {"expression": "6*7"}))
        assert P.render_turn(action, "hm") == CALL_TURN
        assert P.render_turn(Action(ANSWER, "42"), "So it is.") == ANSWER_TURN
        assert P.render_turn(Action(INVALID), "hm") == "<think>\nhm\n</think>"
        one, two = P.render_turn(Action(SEARCH, ("a",))), P.render_turn(Action(SEARCH, ("a", "b")))
        assert '{"name": "search", "arguments": {"query": "a"}}' in one
        assert '{"name": "search", "arguments": {"queries": ["a", "b"]}}' in two

    @pytest.mark.parametrize(
        "action",
        [
            Action("move", "left"),
            Action(TOOL, {"name": "a", "arguments": {}}),
            Action(TOOL, ToolCall("a", {"x": {1}})),
            Action(TOOL, ToolCall("a", {"x": float("nan")})),
        ],
    )
    def test_what_it_cannot_write_is_a_value_error(self, action: Action):
        with pytest.raises(ValueError, match=r"tool-call writes|is not JSON"):
            P.render_turn(action)

    def test_what_cannot_be_encoded_is_written_as_what_can(self):
        turn = P.render_turn(Action(SEARCH, ("a\ud800b",)))
        assert P.parse(turn) == Action(SEARCH, ("a\N{REPLACEMENT CHARACTER}b",))

    def test_only_listed_tools_can_be_opened(self):
        with pytest.raises(ValueError, match="cannot open 'search' with the tools calculator"):
            ToolCallProtocol(tools=[CALCULATOR]).opening(SEARCH)
        with pytest.raises(ValueError, match="cannot open 'tool' with the tools search"):
            ToolCallProtocol().opening(TOOL)
        with pytest.raises(ValueError, match="cannot open 'move'"):
            P.opening("move")


class TestProperties:
    @given(CALLS, TEXTS)
    def test_what_is_written_is_read_again(self, call: ToolCall, thought: str):
        action = Action(TOOL, call)
        turn = P.render_turn(action, thought)
        assert P.parse(turn) == action and P.format_score([turn, ANSWER_TURN]) == 1.0
        json.dumps(P.parse(turn).payload.arguments, allow_nan=False).encode()

    @given(st.lists(TEXTS.map(str.strip).filter(bool), min_size=1, max_size=3))
    def test_every_search_is_read_again(self, queries: list[str]):
        action = Action(SEARCH, tuple(queries))
        assert P.parse(P.render_turn(action)) == action
