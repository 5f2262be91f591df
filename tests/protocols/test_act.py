"""The act protocol: parser, verdict, observations; each failure has its test."""

import pytest
from hypothesis import given
from model_texts import SOUP

from searchrl.core.episode import ACT, INVALID, Action
from searchrl.protocols.act import ThinkAct

P = ThinkAct()
BARE = "<act>right</act>"
THOUGHT = "<think>The hole is below.</think>\n<act>right</act>"


def test_all_tags_are_configurable():
    protocol = ThinkAct(think="plan", act="do", observation="world")
    assert protocol.stops == ("</do>",)
    assert protocol.parse("<plan>p</plan><do>x</do>") == Action(ACT, "x")
    assert protocol.parse(BARE).kind == INVALID
    assert protocol.render_notice("5") == "\n\n<world>5</world>\n\n"
    assert "<do>" in protocol.instruction and "<world>" in protocol.instruction
    assert protocol.neutralise("<act> <do>") == "‹act› ‹do›", "also the usual tag"


class TestParse:
    @pytest.mark.parametrize("turn", [BARE, THOUGHT, "text\n" + BARE, f" {BARE} <|im_end|>\n"])
    def test_one_act_is_read_with_or_without_a_thought(self, turn: str):
        assert P.parse(turn) == Action(ACT, "right")

    @pytest.mark.parametrize(
        ("turn", "reason"),
        [
            ("", "has no action: write <act>"),
            ("<act> \n</act>", "<act> block is empty"),
            ("<act>left", "<act> tag was not closed"),
            ("left</act>", "</act> has no <act> before it"),
            ("<act>a<think>b</think></act>", "<act> block holds another tag"),
            (BARE + BARE, "one act, not several"),
            ("<observation>G</observation>" + BARE, "Only the environment may write"),
        ],
    )
    def test_why_there_is_no_act(self, turn: str, reason: str):
        action = P.parse(turn)
        assert action.kind == INVALID and action.payload is None and reason in action.reason


class TestVerdict:
    @pytest.mark.parametrize(
        ("turns", "score"),
        [
            ([BARE], 1.0),
            (["<think>\n\n</think>\n\n" + THOUGHT], 1.0),
            ([BARE, "<think></think>" + THOUGHT], 0.5),
            ([BARE + "<think>late</think>"], 0.5),
            (["so: " + BARE], 0.5),
            ([BARE, "<act>left"], 0.0),
            ([], 0.0),
        ],
    )
    def test_the_verdict_is_on_every_turn(self, turns: list[str], score: float):
        assert P.format_score(turns) == score


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
