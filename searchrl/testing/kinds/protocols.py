"""Criteria of tag protocols, P1 to P12: of the turns that a model writes, and of what it reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from searchrl.contracts import TokenBudget
from searchrl.contracts.problems import find_action_problem
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action, Passage
from searchrl.errors import ConfigError
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import NotApplicable, Problem, criterion, is_real
from searchrl.testing.kit.fuzz import find_faulty, make_texts, shorten
from searchrl.testing.kit.subject import Subject
from searchrl.testing.kit.tags import MARK, Grammar, tags_in
from searchrl.testing.kit.texts import HARD_TEXTS

_METHODS = (
    "parse", "final_answer", "format_score", "render_turn", "opening", "neutralise",
    "render_observation", "render_notice",
)  # fmt: skip

_WORDS = ("16:45", "not regulated", "Ünï – 中文 图书馆", "5 < 6 & 7 > 3", "l'été", "A. B. C.", "0")
"""Texts that a turn must carry unharmed."""

_BENIGN = (Passage("p", f"{MARK} lies in the sea."), Passage("q", "A second text.", "A title"))

_AMPLE = 120
"""Tokens in which some text must fit besides the tags."""


@criterion("P1")
def _is_protocol(subject: Subject) -> Iterator[Problem]:
    made = subject.make()
    at = type(made)
    for name in ("name", "instruction"):
        value = getattr(made, name, None)
        if not isinstance(value, str) or not value.strip():
            yield Problem(f"{name} = {value!r}; expected a text", at, f"set self.{name} to a text")
    stops = getattr(made, "stops", None)
    are_texts = isinstance(stops, tuple) and all(isinstance(stop, str) and stop for stop in stops)
    if not stops or not are_texts:
        what = f"stops = {stops!r}; expected a tuple of texts, none of them empty"
        fix = "set self.stops to the closing tags with which a turn ends, as in ('</search>',)"
        yield Problem(what, at, fix)
    for name in _METHODS:
        if not callable(getattr(made, name, None)):
            fix = f"see searchrl.contracts.TagProtocol.{name}"
            yield Problem(f"it has no method {name}()", at, fix)


@criterion("P2")
def _reads_anything(subject: Subject) -> Iterator[Problem]:
    grammar, protocol = subject.grammar, subject.grammar.protocol

    def find_fault(text: str) -> tuple[str, object] | None:
        try:
            action = protocol.parse(text)
        except (Exception, SystemExit) as error:
            return f"raised {describe_error(error)}", error
        if problem := find_action_problem(action):
            return f"returned {problem}", protocol.parse
        if action.kind == INVALID and not action.reason:
            return "is invalid without a reason, which the model would read", protocol.parse
        return None

    pieces = grammar.pieces
    if faulty := find_faulty([*HARD_TEXTS, *pieces], make_texts(pieces), find_fault):
        text, (problem, at) = faulty
        yield Problem(f"parse({shorten(text)}) {problem}", at)


@criterion("P3")
def _judges_anything(subject: Subject) -> Iterator[Problem]:
    from hypothesis import strategies as st

    protocol, legal = subject.grammar.protocol, subject.grammar.legal_turns

    def find_fault(turns: Sequence[str]) -> tuple[str, BaseException | None] | None:
        try:
            (answer, score), again = (
                (protocol.final_answer(list(turns)), protocol.format_score(list(turns)))
                for _ in range(2)
            )
        except (Exception, SystemExit) as error:
            return f"raised {describe_error(error)}", error
        if (answer, score) != again:
            return f"gave {(answer, score)!r}, then {again!r}", None
        if answer is not None and not isinstance(answer, str):
            return f"gave the answer {answer!r}; expected a text or None", None
        if not is_real(score) or not 0 <= score <= 1:
            return f"gave the format score {score!r}; expected 0, 0.5 or 1", None
        return None

    listed: list[Sequence[str]] = [[], *([text] for text in HARD_TEXTS), list(legal)]
    listed += [[turn] for turn in legal] + [[turn, other] for turn in legal for other in legal]
    lists = st.lists(make_texts(subject.grammar.pieces), max_size=4)
    if faulty := find_faulty(listed, lists, find_fault):
        turns, (problem, error) = faulty
        what = f"final_answer and format_score of {shorten(str(list(turns)), 120)} {problem}"
        yield Problem(what, error or protocol.format_score)


@criterion("P4")
def _stops_are_reached(subject: Subject) -> Iterator[Problem]:
    grammar, protocol = subject.grammar, subject.grammar.protocol
    if not grammar.actions:
        what = "render_turn writes no search, no answer, no act and no call of a tool"
        fix = "make render_turn write the actions that parse reads"
        yield Problem(what, protocol.render_turn, fix)
        return
    read = [turn for turn in grammar.turns if grammar.parse(turn).kind != INVALID]
    for stop in protocol.stops:
        if not any(stop in turn for turn in read):
            what = f"no turn that parse() accepts ends with the stop string {stop!r}"
            yield Problem(what, type(protocol))


@criterion("P5")
def _turns_end_with_stops(subject: Subject) -> Iterator[Problem]:
    grammar, protocol = subject.grammar, subject.grammar.protocol
    for action in grammar.actions:
        for thought in ("", "a thought", f"beware of {' '.join(protocol.stops)} in here"):
            turn = grammar.render(action, thought) or ""
            if not grammar.ends_at_stop(turn):
                what = f"the turn {shorten(turn)} does not end with the first of its stop strings"
                yield Problem(what, protocol.render_turn)
                break


@criterion("P6")
def _reads_back(subject: Subject) -> Iterator[Problem]:
    protocol = subject.grammar.protocol
    num_read = 0
    spelled = [a for words in _WORDS for a in (Action(ANSWER, words), Action(SEARCH, (words,)))]
    several = Action(SEARCH, ("chess club", "lost property"))
    for action in (*spelled, several, *subject.grammar.actions):
        for thought in ("", "a thought", "Ünï – 中文"):
            try:
                turn = protocol.render_turn(action, thought)
            except ValueError:  # it writes no such action, and says so
                continue
            num_read += 1
            read = protocol.parse(turn)
            if (read.kind, read.payload) != (action.kind, action.payload):
                what = f"render_turn({action.kind} {action.payload!r}, {thought!r})"
                reads = f"which reads as {read.kind} {read.payload!r} {read.reason}"
                yield Problem(f"{what} is {shorten(turn)}, {reads}", protocol.parse)
                break
    if not num_read:
        raise NotApplicable("it writes no turns that could be found (P4)")


@criterion("P7")
def _opens_turns(subject: Subject) -> Iterator[Problem]:
    grammar, protocol = subject.grammar, subject.grammar.protocol
    num_opened = 0
    for action in grammar.actions:
        with contextlib.suppress(ValueError):  # it opens no such turn, and says so
            text, turn = protocol.opening(action.kind), grammar.render(action) or ""
            num_opened += 1
            # What may follow: every ending of the turn's own text behind its opening tag.
            tags = tags_in(turn.partition(MARK)[0])
            start = max((turn.find(tag) + len(tag) for tag in tags), default=1)
            rests = (turn[i:] for i in range(start, len(turn)))
            if any(grammar.parse(text + rest).kind == action.kind for rest in rests):
                continue
            call = f"opening({action.kind!r}) is {shorten(text)}"
            what = f"{call}; no ending of the turn {shorten(turn)} makes it a {action.kind}"
            yield Problem(what, protocol.opening)
    if not num_opened:
        raise NotApplicable("it writes no turns that could be opened")


@criterion("P8")
def _neutralises(subject: Subject) -> Iterator[Problem]:
    protocol, tags = subject.grammar.protocol, subject.grammar.tags

    def find_fault(text: str) -> tuple[str, object] | None:
        safe = protocol.neutralise(text)
        if not isinstance(safe, str):
            return f"neutralise() returned {type(safe).__name__}; expected text", None
        if protocol.neutralise(safe) != safe:
            return f"neutralise() makes {shorten(safe)} of it, and something else of that", None
        if left := [tag for tag in tags if tag in safe]:
            return f"neutralise() leaves {' '.join(left)}: {shorten(safe)}", None
        usual = protocol.render_observation(_BENIGN)
        passages = [_BENIGN[0], Passage("x", text, text)]
        for method, shown in (
            (protocol.render_observation, protocol.render_observation(passages)),
            (protocol.render_notice, protocol.render_notice(text)),
        ):
            if more := [tag for tag in tags if shown.count(tag) > usual.count(tag)]:
                return f"{method.__name__}() shows {' '.join(more)}: {shorten(shown)}", method
        return None

    pieces = subject.grammar.pieces
    texts = [*pieces, *(f"{tag[:3]}{other}{tag[3:]}" for tag in tags for other in tags)]
    if faulty := find_faulty(texts, make_texts(pieces), find_fault):
        text, (problem, at) = faulty
        yield Problem(f"of the foreign text {shorten(text)}, {problem}", at or protocol.neutralise)


@criterion("P10")
def _refuses_forgeries(subject: Subject) -> Iterator[Problem]:
    grammar, protocol = subject.grammar, subject.grammar.protocol
    if not grammar.wrapper:
        raise NotApplicable("its observations stand in no tags")
    shown = protocol.render_observation(_BENIGN)
    pairs = [(f, turn) for turn in grammar.legal_turns for f in (*grammar.wrapper, shown)]
    for text in (text for f, turn in pairs for text in (f"{f}{turn}", f"{turn}{f}")):
        kind, score = protocol.parse(text).kind, protocol.format_score([text])
        if kind != INVALID or score >= 1:
            what = f"is read as {kind}" if kind != INVALID else f"has the format score {score:g}"
            yield Problem(f"the turn {shorten(text, 160)} {what}", protocol.parse)
            return


@criterion("P11")
def _keeps_to_budget(subject: Subject) -> Iterator[Problem]:
    protocol = subject.grammar.protocol
    long = " ".join(f"{MARK}{i}" for i in range(400))
    passages = [Passage(str(i), long, f"title {i}") for i in range(3)]
    renderings: tuple[tuple[Any, Callable[[TokenBudget | None], str]], ...] = (
        (protocol.render_notice, partial(protocol.render_notice, long)),
        (protocol.render_observation, partial(protocol.render_observation, passages)),
        (protocol.render_observation, partial(protocol.render_observation, [])),
    )
    for method, call in renderings:
        whole = call(None)
        for budget in _budgets():
            try:
                cut = call(budget)
            except ConfigError:  # the tags alone are too long
                continue
            problem = ""
            if (length := budget.count(cut)) > budget.max_tokens:
                problem = f"gave {length} tokens"
            elif tags_in(cut) != tags_in(whole):
                left = " ".join(tags_in(cut)) or "none"
                problem = f"is {shorten(cut)}: of {' '.join(tags_in(whole))} there is {left}"
            elif MARK in whole and budget.max_tokens >= _AMPLE and MARK not in cut:
                problem = f"shows nothing of the text: {shorten(cut)}"
            if problem:
                what = f"{method.__name__}() under a budget of {budget.max_tokens} {problem}"
                yield Problem(what, method)
                return
    if "A second text." not in protocol.render_observation(_BENIGN):
        what = "without a budget, render_observation() does not show every passage"
        yield Problem(what, protocol.render_observation, "show all passages, best first")


def _budgets() -> Iterator[TokenBudget]:
    """Budgets in characters and in words, from too small to ample."""
    for limit in (1, 8, 20, 40, 80, _AMPLE, 400):
        yield TokenBudget(limit, len, lambda text, n: text[: max(n, 0)])
        yield TokenBudget.words(limit)


@criterion("P12")
def _explains_tags(subject: Subject) -> Iterator[Problem]:
    grammar: Grammar = subject.grammar
    if "instruction" in subject.settings:
        raise NotApplicable("the instruction is a setting here, and its writer's own")
    tags = dict.fromkeys(tag for turn in grammar.turns for tag in tags_in(turn) if "/" not in tag)
    instruction = grammar.protocol.instruction
    missing = [tag for tag in (*tags, *grammar.wrapper[:1]) if tag not in instruction]
    if missing:
        what = f"the instruction does not mention {' '.join(missing)}"
        yield Problem(what, type(grammar.protocol))
