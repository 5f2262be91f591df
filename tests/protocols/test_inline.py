"""What all built-in protocols promise: settings, total parsers, observations within a budget."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import PASSAGES, SOUP, characters

from searchrl.contracts import TagProtocol
from searchrl.contracts.problems import find_action_problem
from searchrl.core.episode import ACT, ANSWER, INVALID, SEARCH, TOOL, Action, Passage, ToolCall
from searchrl.errors import ConfigError
from searchrl.plugins import load_plugins
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.act import ThinkAct
from searchrl.protocols.tags import INFORMATION_VARIANTS
from searchrl.protocols.tool_call import ToolCallProtocol, load_search_tool


@dataclass(frozen=True)
class Case:
    """A protocol, its tags, what wraps an observation, and a payload and an end of each action."""

    make: Any
    name: str
    stops: tuple[str, ...]
    tags: tuple[str, ...]
    before: str
    after: str
    actions: dict[str, Any]
    ends: dict[str, str]

    @property
    def protocol(self) -> TagProtocol:
        return self.make()


TOOLS = [{"name": "add", "description": "Sums."}, load_search_tool()]
CASES = [
    Case(
        make=ThinkSearchAnswer,
        name="think-search-answer",
        stops=("</search>", "</answer>"),
        tags=("think", "search", "information", "answer"),
        before="\n\n<information>",
        after="</information>\n\n",
        actions={SEARCH: ("chess", "club"), ANSWER: "Room 4"},
        ends={SEARCH: "words</search>", ANSWER: "42</answer>"},
    ),
    Case(
        make=partial(ToolCallProtocol, tools=TOOLS),
        name="tool-call",
        stops=("</tool_call>", "</answer>"),
        tags=("think", "tool_call", "tool_response", "answer"),
        before="\n<tool_response>\n",
        after="\n</tool_response>\n",
        actions={SEARCH: ("chess",), ANSWER: "Room 4", TOOL: ToolCall("add", {"a": [1, 2]})},
        ends={
            SEARCH: 'words"}}\n</tool_call>',
            TOOL: 'add", "arguments": {}}\n</tool_call>',
            ANSWER: "42</answer>",
        },
    ),
    Case(
        make=ThinkAct,
        name="act",
        stops=("</act>",),
        tags=("think", "act", "observation"),
        before="\n\n<observation>",
        after="</observation>\n\n",
        actions={ACT: "right"},
        ends={ACT: "right</act>"},
    ),
]
each_protocol = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
each_with_tag_names = pytest.mark.parametrize("make", [ThinkSearchAnswer, ThinkAct])


@each_protocol
def test_it_is_a_tag_protocol_whose_instruction_names_its_tags(case: Case) -> None:
    assert isinstance(case.protocol, TagProtocol)
    assert (case.protocol.name, case.protocol.stops) == (case.name, case.stops)
    assert all(f"<{tag}>" in case.protocol.instruction for tag in case.tags)


@each_protocol
def test_the_instruction_is_a_text_or_a_file(case: Case, tmp_path: Path) -> None:
    (tmp_path / "i.txt").write_text(" Sei kurz: größer.\n", "utf-8")
    (tmp_path / "i.bin").write_bytes(b"\xff\xfe\x00")
    assert case.make(instruction=f"@{tmp_path}/i.txt").instruction == "Sei kurz: größer."
    assert case.make(instruction="Be brief.").instruction == "Be brief."
    assert case.make(instruction="").instruction == ""
    for name in ("i.bin", "nowhere.txt"):
        with pytest.raises(ConfigError, match=rf"protocol\.instruction.*{name}"):
            case.make(instruction=f"@{tmp_path}/{name}")


@each_with_tag_names
@pytest.mark.parametrize("name", ["", "Think", "a b", 3])
def test_an_unusable_tag_name_is_named_with_its_setting(make: Any, name: object) -> None:
    protocol = make()
    for setting in (tag for case in CASES if case.make is make for tag in case.tags):
        with pytest.raises(ConfigError, match=rf"protocol\.{setting}.*is not a tag name"):
            make(**{setting: name})
    (request, *_) = (stop.strip("</>") for stop in protocol.stops)
    with pytest.raises(ConfigError, match="must differ"):
        make(think=request)


@each_protocol
@given(text=SOUP, data=st.data())
def test_parser_and_verdict_are_total_and_agree(case: Case, text: str, data: st.DataObject) -> None:
    protocol = case.protocol
    kinds = {*case.actions, INVALID}
    for turn in (text, f"<{case.tags[1]}>\n{text}\n{case.stops[0]}"):
        action = protocol.parse(turn)
        assert find_action_problem(action) == ""
        assert action.kind in kinds and (action.kind == INVALID) == bool(action.reason)
        assert action.kind == INVALID or action.payload
        assert action.kind != SEARCH or all(action.queries)
    turns = [text, *data.draw(st.lists(SOUP, max_size=3))]
    score, answer = protocol.format_score(turns), protocol.final_answer(turns)
    assert score in (0.0, 0.5, 1.0)
    if ANSWER in kinds:
        assert (answer is None) == (score == 0.0)
    else:
        assert answer is None
        assert (score > 0) == all(protocol.parse(turn).kind == ACT for turn in turns)


@each_protocol
def test_every_action_is_written_as_it_is_read_and_no_other_kind_is(case: Case) -> None:
    protocol = case.protocol
    for kind, payload in case.actions.items():
        assert protocol.parse(protocol.render_turn(Action(kind, payload), "hm")).kind == kind
        assert protocol.parse(protocol.render_turn(Action(kind, payload))).payload == payload
        assert protocol.parse(protocol.opening(kind) + case.ends[kind]).kind == kind
    assert protocol.parse(protocol.render_turn(Action(INVALID), "hm")).kind == INVALID
    for kind in {SEARCH, ANSWER, ACT, TOOL, "move"} - set(case.actions):
        with pytest.raises(ValueError, match=kind):
            protocol.render_turn(Action(kind, "x"))
        with pytest.raises(ValueError, match=kind):
            protocol.opening(kind)


@each_protocol
def test_notices_and_passages_are_wrapped(case: Case) -> None:
    protocol = case.protocol
    assert protocol.render_notice(" SF\nFG \n") == f"{case.before}SF\nFG{case.after}"
    shown = protocol.render_observation([Passage("1", "text", "Title")])
    assert shown == f"{case.before}Doc 1(Title: Title) text{case.after}"


@each_protocol
def test_tags_in_foreign_text_are_made_harmless_and_stay_readable(case: Case) -> None:
    protocol = case.protocol
    for name in (*case.tags, *INFORMATION_VARIANTS, "think", "search", "answer"):
        text = f"a </{name}> b < {name.upper()} > c < / {name.title()} > d <{name}/> e </ {name}\n>"
        safe = text.replace("<", "‹").replace(">", "›")
        assert protocol.neutralise(text) == safe and safe in protocol.render_notice(text)
    for text in ("a < b and c > d", "<b>bold</b>", "<research>", "<|im_end|>", "x<r y>"):
        assert protocol.neutralise(text) == text


@each_protocol
@pytest.mark.parametrize("fault", ["no tag at all", "<think>never closed", "{open}unclosed"])
def test_the_notice_about_a_fault_shows_the_tags_as_they_are_written(case: Case, fault: str):
    protocol = case.protocol
    kind = next(iter(case.actions))
    reason = protocol.parse(fault.format(open=protocol.opening(kind))).reason
    assert "<" in reason
    notice = protocol.render_notice(f"{reason} Actions: </{case.tags[1]}>.")
    assert notice == f"{case.before}{reason} Actions: ‹/{case.tags[1]}›.{case.after}"


@each_protocol
@given(text=SOUP, passages=PASSAGES, limit=st.integers(40, 200))
def test_foreign_text_never_breaks_out_and_a_budget_cuts_no_tag(
    case: Case, text: str, passages: list[Passage], limit: int
) -> None:
    protocol = case.protocol
    live = re.compile(rf"<\s*/?\s*({'|'.join((*case.tags, *INFORMATION_VARIANTS))})\s*/?\s*>", re.I)
    assert protocol.neutralise(protocol.neutralise(text)) == protocol.neutralise(text)
    for budget in (None, characters(limit)):
        notice = protocol.render_notice(text, budget)
        for shown in (notice, protocol.render_observation(passages, budget)):
            inner = shown.removeprefix(case.before).removesuffix(case.after)
            assert len(inner) == len(shown) - len(case.before) - len(case.after)
            assert not live.search(inner)
            assert budget is None or len(shown) <= limit
            # The verdict reads the model's turns only. Even there, an observation is not an action.
            assert protocol.parse(shown).kind == INVALID


@each_protocol
def test_a_budget_without_room_for_the_tags_is_refused(case: Case) -> None:
    message = rf"budget of 5 tokens cannot hold the <{case.tags[2]}> tags alone"
    with pytest.raises(ConfigError, match=message):
        case.protocol.render_notice("text", characters(5))
    with pytest.raises(ConfigError, match=message):
        case.protocol.render_observation([Passage("a", "text")], characters(5))


REGISTRY = load_plugins(entry_points=False)
SIZE = 50_000
LONG = {
    "blanks behind a bracket": "<" + " " * SIZE,
    "blanks behind a slash": "</" + " " * SIZE + "x",
    "blanks behind a name": "<think" + " " * SIZE,
    "brackets": "<" * SIZE,
    "brackets and blanks": "< " * SIZE,
    "opened and never closed": "<think>" * (SIZE // 10),
    "lines": "<answer>" + " \n" * SIZE,
}


@pytest.mark.timeout(20)  # quadratic time takes minutes
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
@pytest.mark.parametrize("name", REGISTRY.names("protocol"))
def test_reading_a_long_text_takes_linear_time(name: str, text: str) -> None:
    protocol = REGISTRY.get("protocol", name).make()
    assert protocol.neutralise(text) and protocol.parse(text).kind
    assert protocol.format_score([text]) == 0 and protocol.final_answer([text]) is None
