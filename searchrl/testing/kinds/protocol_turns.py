"""Criteria of tag protocols, P1 to P7: what a protocol has, and how it reads and writes turns.

Owns what concerns the model's own turns; `protocol_texts` has the text of others. Called through
`protocols.PROTOCOL_CRITERIA`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Sequence

from searchrl.contracts import find_action_problem
from searchrl.core.episode import ANSWER, INVALID, SEARCH, Action
from searchrl.plugins.registry import describe_error
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.protocol_subject import ProtocolSubject, find_attribute_problems
from searchrl.testing.kit.fuzz import HARD_TEXTS, catch, find_example, make_texts, shorten
from searchrl.testing.kit.tags import MARK, open_turn, render, tags_in

_WORDS = ("16:45", "not regulated", "Ünï – 中文 图书馆", "5 < 6 & 7 > 3", "l'été", "A. B. C.", "0")
"""Texts that a turn must carry unharmed."""


@criterion(
    "P1",
    "has a name, an instruction, stop strings and its methods",
    "Prompts are made of the instruction, turns end at the stop strings.",
)
def is_protocol(subject: ProtocolSubject) -> Iterator[Problem]:
    """P1."""
    try:
        made = subject.make()
    except (Exception, SystemExit) as error:
        yield Problem(
            f"making it raised {describe_error(error)}",
            "the factory is called as factory(**settings); pass settings with --set NAME=VALUE",
            error,
        )
        return
    for what, mend in find_attribute_problems(made):
        yield Problem(what, mend, type(made))


@criterion(
    "P2",
    "reads any text as an action",
    "A model writes anything; what raises is a failed rollout.",
)
def reads_anything(subject: ProtocolSubject) -> Iterator[Problem]:
    """P2."""
    protocol = subject.raw
    mend = "return Action('invalid', None, reason) for what cannot be read; never raise on text"

    def find_problem(text: str) -> str:
        try:
            return find_action_problem(protocol.parse(text))
        except (Exception, SystemExit) as error:
            return f"raised {describe_error(error)}"

    # The pieces come from asking the protocol, which may itself fail on its own tags.
    pieces = _pieces_of(subject)
    texts = [*HARD_TEXTS, *pieces]
    text = next((text for text in texts if find_problem(text)), None)
    if text is None:
        text = find_example(make_texts(pieces), lambda text: bool(find_problem(text)))
    if text is not None:
        problem = find_problem(text)
        if problem.startswith("raised"):
            yield Problem(f"parse({shorten(text)}) {problem}", mend, catch(protocol.parse, text))
        else:
            yield Problem(f"parse({shorten(text)}) returned {problem}", mend, protocol.parse)
        return
    for text in texts:
        action = protocol.parse(text)
        if action.kind == INVALID and not action.reason:
            yield Problem(
                f"parse({shorten(text)}) is invalid without a reason",
                "say in Action.reason what was expected: the model reads it",
                protocol.parse,
            )
            return


@criterion(
    "P3",
    "judges any turns, within [0, 1] and always the same",
    "Rewards are made of them, and computed again from recorded turns.",
)
def judges_anything(subject: ProtocolSubject) -> Iterator[Problem]:
    """P3."""
    from hypothesis import strategies as st

    protocol = subject.raw

    def find_fault(turns: Sequence[str]) -> tuple[str, BaseException | None] | None:
        try:
            answers = protocol.final_answer(list(turns)), protocol.final_answer(list(turns))
            scores = protocol.format_score(list(turns)), protocol.format_score(list(turns))
        except (Exception, SystemExit) as error:
            return f"raised {describe_error(error)}", error
        if answers[0] != answers[1] or scores[0] != scores[1]:
            return f"gave {(answers[0], scores[0])!r}, then {(answers[1], scores[1])!r}", None
        if answers[0] is not None and not isinstance(answers[0], str):
            return f"gave the answer {answers[0]!r}; expected a text or None", None
        score = scores[0]
        if not isinstance(score, numbers.Real) or not math.isfinite(score) or not 0 <= score <= 1:
            return f"gave the format score {score!r}; expected 0, 0.5 or 1", None
        return None

    listed: list[Sequence[str]] = [[], *([text] for text in HARD_TEXTS), list(subject.legal_turns)]
    listed += [[turn] for turn in subject.legal_turns]
    listed += [[turn, other] for turn in subject.legal_turns for other in subject.legal_turns]
    turns = next((turns for turns in listed if find_fault(turns)), None)
    if turns is None:
        lists = st.lists(make_texts(subject.pieces), max_size=4)
        turns = find_example(lists, lambda turns: find_fault(turns) is not None)
    if turns is not None and (fault := find_fault(turns)):
        yield Problem(
            f"final_answer and format_score of {shorten(str(list(turns)), 120)} {fault[0]}",
            "judge the turns alone, and all turns: 1 valid, 0.5 an answer in a wrong form, else 0",
            fault[1] or protocol.format_score,
        )


@criterion(
    "P4",
    "ends some turn with every stop string",
    "Sampling stops at these strings: one that ends no turn does nothing, or cuts turns short.",
)
def stops_are_reached(subject: ProtocolSubject) -> Iterator[Problem]:
    """P4."""
    protocol = subject.protocol
    if not subject.actions and not subject.legal_turns:
        yield Problem(
            "no action could be found that it writes: render_turn and opening refuse searches and "
            "answers, and nothing that ends with a stop string is read as an action",
            "make render_turn write the actions that parse reads",
            protocol.render_turn,
        )
        return
    opened = [open_turn(protocol, action.kind) for action in subject.actions]
    turns = [*subject.legal_turns]
    turns += [f"{text}{MARK}{stop}" for text in opened if text for stop in protocol.stops]
    ends = [turn for turn in turns if protocol.parse(turn).kind != INVALID]
    for stop in protocol.stops:
        if not any(turn.endswith(stop) for turn in ends):
            yield Problem(
                f"no turn that parse() accepts ends with the stop string {stop!r}",
                "list in `stops` exactly the texts with which a turn ends (closing tags, mostly)",
                type(subject.raw),
            )


@criterion(
    "P5",
    "ends every turn that it writes with the first stop string",
    "Sampling cuts a turn there: what comes later is lost, and a turn without one goes on.",
)
def turns_end_with_stops(subject: ProtocolSubject) -> Iterator[Problem]:
    """P5."""
    protocol = subject.protocol
    if not subject.actions:
        raise NotApplicable("it writes no turns that could be found (P4)")
    thoughts = ("", "a thought", f"beware of {' '.join(protocol.stops)} in here")
    for action in subject.actions:
        for thought in thoughts:
            turn = render(protocol, action, thought) or ""
            ends = [turn.find(stop) + len(stop) for stop in protocol.stops if stop in turn]
            if not ends or min(ends) != len(turn):
                yield Problem(
                    f"the turn {shorten(turn)} does not end with the first of its stop strings",
                    "end turns with the closing tag, without a line break after it, and neutralise "
                    "thoughts and contents",
                    protocol.render_turn,
                )
                break


@criterion(
    "P6",
    "reads back what it writes",
    "Demonstrations and scripted policies teach turns that must mean what they were written for.",
)
def reads_back(subject: ProtocolSubject) -> Iterator[Problem]:
    """P6."""
    protocol = subject.raw
    num_read = 0
    for action in (*_spell_out(), *subject.actions):
        for thought in ("", "a thought", "Ünï – 中文"):
            try:
                turn = protocol.render_turn(action, thought)
            except ValueError:  # it writes no such action, and says so
                continue
            except (Exception, SystemExit) as error:
                yield Problem(
                    f"render_turn({action}) raised {describe_error(error)}",
                    "write the turn, or raise ValueError for an action that it does not write",
                    error,
                )
                break
            num_read += 1
            read = subject.protocol.parse(turn)
            if (read.kind, read.payload) != (action.kind, action.payload):
                yield Problem(
                    f"render_turn({action.kind} {action.payload!r}, {thought!r}) is "
                    f"{shorten(turn)}, which reads as {read.kind} {read.payload!r} {read.reason}",
                    "read in parse() exactly what render_turn() writes, white space at the ends "
                    "aside",
                    protocol.parse,
                )
                break
    if not num_read:
        raise NotApplicable("it writes no turns that could be found (P4)")


@criterion(
    "P7",
    "opens a turn of the kind it is asked for",
    "Evaluation with a forced first turn begins it with this text.",
)
def opens_turns(subject: ProtocolSubject) -> Iterator[Problem]:
    """P7."""
    protocol = subject.protocol
    num_opened = 0
    for action in subject.actions:
        text = open_turn(protocol, action.kind)
        if text is None:
            continue
        num_opened += 1
        turn = render(protocol, action, "a thought") or ""
        # What may follow the opening: every ending of the turn's own text behind its opening tag.
        start = max(
            (turn.find(tag) + len(tag) for tag in tags_in(turn.partition(MARK)[0])), default=1
        )
        rests = (turn[i:] for i in range(start, len(turn)))
        if not any(protocol.parse(text + rest).kind == action.kind for rest in rests):
            yield Problem(
                f"opening({action.kind!r}) is {shorten(text)}; no ending of the turn "
                f"{shorten(turn)} makes it a {action.kind}",
                "return what render_turn writes, up to and with the opening tag",
                protocol.opening,
            )
    if not num_opened:
        raise NotApplicable("opening() refuses every kind that it writes: no turn can be forced")


def _pieces_of(subject: ProtocolSubject) -> tuple[str, ...]:
    """What hard texts are made of; its stop strings alone if it cannot be asked for more."""
    try:
        return subject.pieces
    except NotApplicable:
        tags = [tag for stop in subject.protocol.stops for tag in (stop, stop.replace("/", ""))]
        return (*tags, *(f"{opener}x{stop}" for opener in tags for stop in tags))


def _spell_out() -> Iterator[Action]:
    for words in _WORDS:
        yield Action(ANSWER, words)
        yield Action(SEARCH, (words,))
    yield Action(SEARCH, ("chess club", "lost property"))
