"""The act protocol: parser, verdict, observations; each failure has its test."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soup import characters, make_soup

from searchrl.contracts import TagProtocol
from searchrl.core.episode import ACT, ANSWER, INVALID, SEARCH, Action, Passage
from searchrl.errors import ConfigError
from searchrl.protocols.act import ThinkAct
from searchrl.protocols.tag_names import INFORMATION_VARIANTS

P = ThinkAct()
BARE = "<act>right</act>"
THOUGHT = "<think>The hole is below.</think>\n<act>right</act>"

SOUP = make_soup("think act observation Act answer search context", "< act >", "<act")


def test_it_is_a_tag_protocol():
    assert isinstance(P, TagProtocol)
    assert P.name == "act" and P.stops == ("</act>",)
    for tag in ("<think>", "<act>", "<observation>"):
        assert tag in P.instruction


class TestSettings:
    def test_all_tags_are_configurable(self):
        protocol = ThinkAct(think="plan", act="do", observation="world")
        assert protocol.stops == ("</do>",)
        assert protocol.parse("<plan>p</plan><do>x</do>") == Action(ACT, "x")
        assert protocol.parse(BARE).kind == INVALID
        assert protocol.render_notice("5") == "\n\n<world>5</world>\n\n"
        assert "<do>" in protocol.instruction and "<world>" in protocol.instruction

    @pytest.mark.parametrize("setting", ["think", "act", "observation"])
    @pytest.mark.parametrize("name", ["", "A", "a b", "<a>", 3])
    def test_unusable_tag_name_is_named_with_its_setting(self, setting: str, name: object):
        with pytest.raises(ConfigError, match=rf"protocol\.{setting}.*is not a tag name"):
            ThinkAct(**{setting: name})

    def test_tags_must_differ(self):
        with pytest.raises(ConfigError, match="must differ"):
            ThinkAct(think="act")

    def test_instruction_is_a_value_or_a_file(self, tmp_path):
        (tmp_path / "i.txt").write_text(" Move. \n", "utf-8")
        assert ThinkAct(instruction=f"@{tmp_path}/i.txt").instruction == "Move."
        assert ThinkAct(instruction="").instruction == ""
        with pytest.raises(ConfigError, match=r"protocol\.instruction.*nowhere"):
            ThinkAct(instruction="@nowhere")


class TestParse:
    @pytest.mark.parametrize("turn", [BARE, THOUGHT, "text\n" + BARE, f" {BARE} <|im_end|>\n"])
    def test_one_act_is_read_with_or_without_a_thought(self, turn: str):
        assert P.parse(turn) == Action(ACT, "right")

    @pytest.mark.parametrize(
        ("turn", "reason"),
        [
            ("", "has no action: write <act>"),
            ("<think>t</think>", "has no action"),
            ("<act> \n</act>", "<act> block is empty"),
            ("<act>left", "<act> tag was not closed"),
            ("left</act>", "</act> has no <act> before it"),
            ("<think>left", "<think> tag was not closed"),
            ("<act>a<think>b</think></act>", "<act> block holds another tag"),
            (BARE + BARE, "one act, not several"),
            ("<observation>G</observation>" + BARE, "Only the environment may write"),
            ("<answer>right</answer>", "has no action"),
        ],
    )
    def test_why_there_is_no_act(self, turn: str, reason: str):
        action = P.parse(turn)
        assert action.kind == INVALID and action.payload is None and reason in action.reason

    @given(SOUP)
    def test_parse_is_total_and_an_act_is_text(self, text: str):
        action = P.parse(text)
        assert action.kind in (ACT, INVALID)
        assert (action.kind == ACT) == (isinstance(action.payload, str) and action.payload != "")
        assert (action.kind == INVALID) == bool(action.reason)


class TestVerdict:
    @pytest.mark.parametrize(
        ("turns", "score"),
        [
            ([BARE], 1.0),
            ([THOUGHT, BARE, THOUGHT], 1.0),
            (["<think>\n\n</think>\n\n" + THOUGHT], 1.0),
            (["<think></think>" + BARE], 1.0),
            ([BARE, "<think></think>" + THOUGHT], 0.5),
            (["<think>a</think>" + THOUGHT], 0.5),
            ([BARE + "<think>late</think>"], 0.5),
            (["so: " + BARE], 0.5),
            ([BARE, "<act>left"], 0.0),
            ([BARE, "no tag"], 0.0),
            ([], 0.0),
        ],
    )
    def test_the_verdict_is_on_every_turn(self, turns: list[str], score: float):
        assert P.format_score(turns) == score

    def test_who_acts_does_not_answer(self):
        assert P.final_answer([THOUGHT, BARE, "<answer>x</answer>"]) is None

    @given(st.lists(SOUP, max_size=4))
    def test_the_verdict_is_total_and_follows_the_parser(self, turns: list[str]):
        score = P.format_score(turns)
        assert score in (0.0, 0.5, 1.0)
        assert (score > 0) == (bool(turns) and all(P.parse(t).kind == ACT for t in turns))


class TestWriting:
    def test_a_turn_is_written_as_it_is_read(self):
        assert P.render_turn(Action(ACT, "right")) == BARE
        assert P.render_turn(Action(ACT, "right"), "The hole is below.") == THOUGHT
        assert P.opening(ACT) == "<act>"
        assert P.parse(P.opening(ACT) + "right" + P.stops[0]) == Action(ACT, "right")

    @given(SOUP, SOUP)
    def test_any_text_can_be_acted_and_thought(self, payload: str, thought: str):
        turn = P.render_turn(Action(ACT, payload), thought)
        action = P.parse(turn)
        assert turn.count("<act>") == turn.count("</act>") == 1
        assert action.kind == ACT or not P.neutralise(payload).strip() or "empty" in action.reason

    def test_an_invalid_turn_is_written_as_one(self):
        assert P.parse(P.render_turn(Action(INVALID), "hm")).kind == INVALID

    @pytest.mark.parametrize("kind", [SEARCH, ANSWER, "dance"])
    def test_other_kinds_are_refused(self, kind: str):
        with pytest.raises(ValueError, match=kind):
            P.render_turn(Action(kind, "x"))
        with pytest.raises(ValueError, match=kind):
            P.opening(kind)


class TestObservations:
    def test_notice_and_passages_are_wrapped(self):
        assert P.render_notice(" SF\nFG \n") == "\n\n<observation>SF\nFG</observation>\n\n"
        shown = P.render_observation([Passage("1", "text", "Title")])
        assert shown == "\n\n<observation>Doc 1(Title: Title) text</observation>\n\n"

    @pytest.mark.parametrize("name", ["act", "think", "observation", *INFORMATION_VARIANTS])
    def test_what_the_environment_says_holds_no_live_tag(self, name: str):
        shown = P.render_notice(f"a </{name}> b < {name.upper()} > c")
        assert f"a ‹/{name}› b ‹ {name.upper()} › c" in shown

    @given(SOUP, st.integers(40, 80))
    def test_a_budget_cuts_the_text_and_never_the_tags(self, text: str, size: int):
        shown = P.render_notice(text, characters(size))
        assert len(shown) <= size
        assert shown.startswith("\n\n<observation>") and shown.endswith("</observation>\n\n")

    def test_a_budget_without_room_for_the_tags_is_refused(self):
        with pytest.raises(ConfigError, match="<observation> tags alone"):
            P.render_notice("text", characters(10))
