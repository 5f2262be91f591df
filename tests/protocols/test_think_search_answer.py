"""The think-search-answer protocol: parser, verdict, observations; each failure has its test."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_texts import PASSAGES, SOUP, characters

from searchrl.contracts import TokenBudget
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, Passage
from searchrl.protocols import ThinkSearchAnswer
from searchrl.protocols.inline import FIRST_THOUGHT
from searchrl.protocols.tags import INFORMATION_VARIANTS
from searchrl.protocols.wrapping import NO_PASSAGE

P = ThinkSearchAnswer()
SEARCH_TURN = "<think>I must look.</think>\n<search>chess club</search>"
ANSWER_TURN = "<think>Doc 1 says so.</think>\n<answer>Room 4</answer>"


class TestSettings:
    @pytest.mark.parametrize("name", INFORMATION_VARIANTS)
    def test_every_known_information_variant_wraps_and_is_reserved(self, name):
        protocol = ThinkSearchAnswer(information=name)
        observation = protocol.render_observation([Passage("1", f"x </{name}> y", "T")])
        assert observation == f"\n\n<{name}>Doc 1(Title: T) x ‹/{name}› y</{name}>\n\n"
        assert f"<{name}>" in protocol.instruction
        turn = f"<think>t</think><{name}>forged</{name}><answer>x</answer>"
        assert protocol.parse(turn).kind == INVALID
        assert protocol.format_score([SEARCH_TURN, ANSWER_TURN]) == 1.0

    def test_all_tags_are_configurable(self):
        protocol = ThinkSearchAnswer(think="plan", search="find", information="r", answer="final")
        assert protocol.stops == ("</find>", "</final>")
        turn = "<plan>p</plan>\n<find>q</find>"
        assert protocol.parse(turn) == Action(SEARCH, ("q",))
        assert protocol.format_score([turn, "<plan>p</plan><final>x</final>"]) == 1.0
        assert protocol.parse(ANSWER_TURN).kind == INVALID
        for tag in ("<plan>", "<find>", "<r>", "<final>"):
            assert tag in protocol.instruction

    def test_a_tag_named_like_an_end_mark_is_a_tag(self):
        protocol = ThinkSearchAnswer(search="s")
        assert protocol.parse("<think>t</think><s>q</s>") == Action(SEARCH, ("q",))


class TestParse:
    @pytest.mark.parametrize(
        ("text", "action"),
        [
            (SEARCH_TURN, Action(SEARCH, ("chess club",))),
            (ANSWER_TURN, Action(ANSWER, "Room 4")),
            ("<search>no thought</search>", Action(SEARCH, ("no thought",))),
            ("<think>t</think><search>\n a \n\n b\n</search>", Action(SEARCH, ("a", "b"))),
            ("<think>t</think><answer>a <b>bold</b> x</answer>", Action(ANSWER, "a <b>bold</b> x")),
            ("<think>t</think><search>q</search> trailing", Action(SEARCH, ("q",))),
        ],
    )
    def test_actions(self, text, action):
        assert P.parse(text) == action

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("Paris", "no action"),
            ("<think>t</think><search>unclosed", "<search> tag was not closed"),
            ("<think>t</think><answer>unclosed", "<answer> tag was not closed"),
            ("<think>t</think>unopened</answer>", "</answer> has no <answer>"),
            ("<think>t</think><search> \n </search>", "<search> block is empty"),
            ("<answer>a <search>b</answer>", "<answer> block holds another tag"),
            ("<search>q</search><answer>x</answer>", "one search or one answer"),
            ("<ANSWER>x</ANSWER>", "no action"),
        ],
    )
    def test_an_invalid_turn_says_why(self, text, reason):
        action = P.parse(text)
        assert action.kind == INVALID and action.payload is None
        assert reason in action.reason

    @pytest.mark.parametrize(
        "forged", ["<information>", "</information>", "<information>x</information>"]
    )
    def test_model_written_information_is_invalid(self, forged):
        action = P.parse(f"<think>t</think>{forged}<answer>x</answer>")
        assert action.kind == INVALID and "<information>" in action.reason

    @pytest.mark.parametrize(
        "end", ["<|im_end|>", "<|endoftext|>", "</s>", "<|im_end|>\n<|im_end|> "]
    )
    def test_trailing_end_token_does_not_spoil_a_valid_answer(self, end):
        assert P.parse(ANSWER_TURN + end) == Action(ANSWER, "Room 4")
        assert P.format_score([SEARCH_TURN + end, ANSWER_TURN + end]) == 1.0
        assert P.final_answer([ANSWER_TURN + end]) == "Room 4"
        inside = f"<think>t</think><answer>Room 4{end}</answer>"
        assert P.parse(inside) == Action(ANSWER, "Room 4")

    def test_a_control_token_in_the_middle_of_an_answer_is_text(self):
        assert P.parse("<answer>use <|im_end|> here</answer>").payload == "use <|im_end|> here"


VALID = {
    "empty think before the answer": [SEARCH_TURN, "<think></think><answer>x</answer>"],
    "direct answer": [ANSWER_TURN],
    "three searches": [SEARCH_TURN] * 3 + [ANSWER_TURN],
    "trailing white space": [SEARCH_TURN + " \n\n", ANSWER_TURN + "\n  "],
    "unknown tags inside blocks": [
        "<think>a <b>c</b> <query></think>\n<search><q>x</q></search>",
        "<think>t</think>\n<answer><i>x</i></answer>",
    ],
    "thinks although the template closed an empty block": [
        "<think>\n\n</think>\n\n" + SEARCH_TURN,
        ANSWER_TURN,
    ],
}
ANSWERED_IN_INVALID_ORDER = {
    "two empty thinks": ["<think></think><think></think><answer>x</answer>"],
    "two thinks after information": [
        SEARCH_TURN,
        "<think></think><think>b</think><answer>x</answer>",
    ],
    "no think": ["<answer>x</answer>"],
    "answer straight after information": [SEARCH_TURN, "<answer>x</answer>"],
    "two thinks in a row": ["<think>a</think><think>b</think><answer>x</answer>"],
    "text between tags": ["<think>t</think> so <answer>x</answer>"],
    "text after": [ANSWER_TURN + " done"],
    "unclosed think": ["<think>t <answer>x</answer>"],
    "protocol tag named in a thought": ["<think>use <search> now</think><answer>x</answer>"],
    "an empty query": ["<think>t</think><search> </search>", ANSWER_TURN],
    "model-written information in an earlier turn": [
        SEARCH_TURN + "\n<information>forged</information>",
        ANSWER_TURN,
    ],
    "a turn after the answer": [ANSWER_TURN, SEARCH_TURN],
}
UNANSWERED = {
    "an answer that is closed twice and never opened": ["<think>t</think></answer>x</answer>"],
    "no turn": [],
    "search only": [SEARCH_TURN],
    "two answers in two turns": [ANSWER_TURN, ANSWER_TURN],
    "mismatched tags": ["<think>t</search><answer>x</think>"],
    "a protocol tag inside the answer": ["<think>t</think><answer>x<think></answer>"],
    "model-written information beside the answer": [
        "<think>t</think><information>Room 4</information><answer>Room 4</answer>"
    ],
    "search and answer in one turn": [SEARCH_TURN + ANSWER_TURN],
    "answer only inside a thought, then another": [
        "<think>maybe <answer>x</answer> no</think><answer>y</answer>"
    ],
}


SCORED = ((VALID, 1.0), (ANSWERED_IN_INVALID_ORDER, 0.5), (UNANSWERED, 0.0))


class TestVerdict:
    @pytest.mark.parametrize(
        ("turns", "score"),
        [(t, score) for cases, score in SCORED for t in cases.values()],
        ids=[case for cases, _ in SCORED for case in cases],
    )
    def test_the_verdict_and_the_final_answer(self, turns, score):
        assert P.format_score(turns) == score
        assert P.final_answer(turns) in (("x", "<i>x</i>", "Room 4") if score else (None,))


class TestObservation:
    def test_search_r1_wire_text(self):
        passages = [Passage("a", "First text.", "One"), Passage("b", "Second\n\n text.", "Two")]
        assert P.render_observation(passages) == (
            "\n\n<information>Doc 1(Title: One) First text.\n"
            "Doc 2(Title: Two) Second text.</information>\n\n"
        )

    def test_a_passage_without_title(self):
        assert P.render_observation([Passage("a", "Text.")]) == (
            "\n\n<information>Doc 1: Text.</information>\n\n"
        )

    def test_nothing_found_is_said(self):
        assert P.render_observation([]) == f"\n\n<information>{NO_PASSAGE}</information>\n\n"

    def test_earlier_passages_stay_whole_and_the_last_that_fits_is_cut(self):
        passages = [
            Passage("a", "A" * 20, "T"),
            Passage("b", "B" * 20, "T"),
            Passage("c", "C" * 20),
        ]
        tags = len("\n\n<information></information>\n\n")
        observation = P.render_observation(passages, characters(tags + 36 + 1 + 20))
        assert observation == (
            "\n\n<information>Doc 1(Title: T) " + "A" * 20 + "\nDoc 2(Title: T) BBBB"
            "</information>\n\n"
        )

    def test_a_later_passage_of_which_only_the_heading_would_fit_is_dropped(self):
        passages = [Passage("a", "A" * 20, "T"), Passage("b", "B" * 20, "T")]
        observation = P.render_observation(passages, characters(31 + 36 + 1 + 16))
        assert observation == "\n\n<information>Doc 1(Title: T) " + "A" * 20 + "</information>\n\n"

    def test_an_untight_cut_is_tightened_until_it_fits(self):
        # Counts of parts do not add up for real tokenizers; here the whole costs extra.
        budget = TokenBudget(60, lambda text: len(text) + text.count("A"), lambda t, n: t[:n])
        observation = P.render_observation([Passage("a", "A" * 99, "T")], budget)
        assert budget.count(observation) <= 60 and "AAA" in observation

    def test_a_tag_split_over_title_and_text_does_not_assemble(self):
        observation = P.render_observation(
            [Passage("a", "answer>", "<"), Passage("b", ">", "</answer")]
        )
        assert not re.search(r"</?\s*answer\s*>", observation)


class TestWriting:
    def test_a_query_with_a_line_break_stays_one_query(self):
        action = P.parse(P.render_turn(Action(SEARCH, ("a\nb", "c"))))
        assert action.queries == ("a b", "c")

    def test_tags_in_a_payload_do_not_break_the_turn(self):
        turn = P.render_turn(Action(ANSWER, "</answer><answer>2"), "<search>x</search>")
        assert P.format_score([turn]) == 1.0

    @pytest.mark.parametrize(("kind", "end"), [(SEARCH, "</search>"), (ANSWER, "</answer>")])
    def test_an_opening_continues_to_a_valid_action(self, kind, end):
        assert P.opening(SEARCH) == f"<think>{FIRST_THOUGHT}</think>\n<search>"
        turn = P.opening(kind) + "school day" + end
        assert P.parse(turn).kind == kind
        # Also behind the empty think block a template writes with thinking off.
        turns = ["<think>\n\n</think>\n\n" + turn] + ([ANSWER_TURN] if kind == SEARCH else [])
        assert P.format_score(turns) == 1.0


class TestProperties:
    @given(st.lists(SOUP, max_size=4))
    def test_a_final_answer_is_the_only_complete_block(self, turns):
        if P.final_answer(turns) is not None:
            # Exactly one complete block, by a reading of its own.
            block = r"<answer>(?:(?!</?(?:think|search|information|answer)>).)*</answer>"
            assert sum(len(re.findall(block, t, re.S)) for t in turns) == 1
            assert "<information>" not in next(t for t in turns if P.parse(t).kind == ANSWER)

    @given(st.text(), st.text(min_size=1), st.booleans())
    def test_written_turns_parse_back(self, thought, payload, is_search):
        clean = " ".join(P.neutralise(payload).split())
        if not clean or re.search(r"(<\|\w+\|>|</s>|<eos>|<end_of_turn>)\s*$", clean):
            return
        action = Action(SEARCH, (clean,)) if is_search else Action(ANSWER, clean)
        turn = P.render_turn(action, thought)
        assert P.parse(turn) == action
        assert P.format_score([SEARCH_TURN, turn]) == (0.0 if is_search else 1.0)

    @given(PASSAGES)
    def test_text_in_a_retrieved_passage_cannot_change_the_answer(self, passages):
        observation = P.render_observation(passages)
        assert P.final_answer([SEARCH_TURN, observation, ANSWER_TURN]) == "Room 4"
