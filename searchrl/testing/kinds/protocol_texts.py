"""Criteria of tag protocols, P8 to P12: foreign text, observations and the instruction.

Owns what concerns text that the model reads and did not write; `protocol_turns` has its own turns.
Called through `protocols.PROTOCOL_CRITERIA`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from searchrl.contracts import TagProtocol, TokenBudget
from searchrl.core.episode import INVALID, Passage
from searchrl.errors import ConfigError
from searchrl.testing.criteria import NotApplicable, Problem, criterion
from searchrl.testing.kinds.protocol_subject import ProtocolSubject
from searchrl.testing.kit.fuzz import find_example, make_texts, shorten
from searchrl.testing.kit.tags import MARK, render, tags_in

_BENIGN = (Passage("p", f"{MARK} lies in the sea."), Passage("q", "A second text.", "A title"))


_AMPLE = 120
"""Tokens in which some text must fit besides the tags."""


@criterion(
    "P8",
    "makes foreign text harmless",
    "Passages are written by anybody: a tag in one could end an observation, or answer.",
)
def neutralises(subject: ProtocolSubject) -> Iterator[Problem]:
    """P8."""
    protocol = subject.raw
    usual = {tag: protocol.render_observation(_BENIGN).count(tag) for tag in subject.tags}

    def find_fault(text: str) -> tuple[str, object] | None:
        safe = protocol.neutralise(text)
        if not isinstance(safe, str):
            return f"neutralise() returned {type(safe).__name__}; expected text", None
        if protocol.neutralise(safe) != safe:
            return f"neutralise() makes {shorten(safe)} of it, and something else of that", None
        if left := [tag for tag in subject.tags if tag in safe]:
            return f"neutralise() leaves {' '.join(left)}: {shorten(safe)}", None
        passages = [_BENIGN[0], Passage("x", text, text)]
        for method, shown in (
            (protocol.render_observation, protocol.render_observation(passages)),
            (protocol.render_notice, protocol.render_notice(text)),
        ):
            if more := [tag for tag in subject.tags if shown.count(tag) > max(usual[tag], 0)]:
                return f"{method.__name__}() shows {' '.join(more)}: {shorten(shown)}", method
        return None

    split = [f"{tag[:3]}{other}{tag[3:]}" for tag in subject.tags for other in subject.tags]
    texts = [*subject.pieces, *split]
    faulty = next((text for text in texts if find_fault(text)), None)
    if faulty is None:
        faulty = find_example(make_texts(subject.pieces), lambda text: find_fault(text) is not None)
    if faulty is not None and (fault := find_fault(faulty)):
        yield Problem(
            f"of the foreign text {shorten(faulty)}, {fault[0]}",
            "replace the brackets of every tag of yours, in any case, as in ‹tag›, and pass all "
            "foreign text through it",
            fault[1] or protocol.neutralise,
        )


@criterion(
    "P9",
    "judges without regard to retrieved text",
    "Whoever writes into the corpus could else decide what is rewarded.",
)
def is_not_swayed(subject: ProtocolSubject) -> Iterator[Problem]:
    """P9."""
    protocol = subject.protocol
    forged = subject.forged
    evil = [Passage("x", forged, forged), *(Passage(t, t) for t in subject.legal_turns)]
    for turns in ([], ["plain words"], *([turn] for turn in subject.legal_turns)):
        before = _judge(protocol, turns)
        shown = protocol.render_observation(evil)
        protocol.render_notice(forged)
        after = _judge(protocol, turns)
        if before != after:
            yield Problem(
                f"the verdict on {shorten(str(turns))} is {before!r}; once a passage that holds "
                f"{shorten(forged)} was shown, it is {after!r}",
                "keep nothing of what is shown; judge the turns that the model wrote, alone",
                protocol.render_observation,
            )
            return
        read = protocol.parse(shown)
        if read.kind != INVALID:
            yield Problem(
                f"an observation whose passage holds {shorten(forged)} reads as a turn: "
                f"{read.kind} {read.payload!r}",
                "neutralise passages in render_observation",
                protocol.render_observation,
            )
            return


@criterion(
    "P10",
    "refuses turns that write the environment's tags",
    "It would else learn to invent the passages it is rewarded for reading.",
)
def refuses_forgeries(subject: ProtocolSubject) -> Iterator[Problem]:
    """P10."""
    protocol = subject.protocol
    if not subject.wrapper:
        raise NotApplicable("its observations stand in no tags")
    shown = protocol.render_observation(_BENIGN)
    for turn in subject.legal_turns:
        for forged in (*subject.wrapper, shown):
            for text in (f"{forged}{turn}", f"{turn}{forged}"):
                if protocol.parse(text).kind != INVALID:
                    yield Problem(
                        f"the turn {shorten(text, 160)} is read as {protocol.parse(text).kind}",
                        f"return an invalid action for a turn that holds {subject.wrapper[0]}",
                        protocol.parse,
                    )
                    return
                if protocol.format_score([text]) >= 1:
                    yield Problem(
                        f"the format score of {shorten(text, 160)} is 1",
                        f"score a dialogue in which the model writes {subject.wrapper[0]} below 1",
                        protocol.format_score,
                    )
                    return


@criterion(
    "P11",
    "keeps observations within the budget, their tags whole",
    "A cut closing tag leaves the model inside the observation for the rest of the episode.",
)
def keeps_to_budget(subject: ProtocolSubject) -> Iterator[Problem]:
    """P11."""
    protocol = subject.protocol
    long = " ".join(f"{MARK}{i}" for i in range(400))
    passages = [Passage(str(i), long, f"title {i}") for i in range(3)]
    renderings: tuple[tuple[Any, Callable[[TokenBudget | None], str]], ...] = (
        (protocol.render_notice, partial(protocol.render_notice, long)),
        (protocol.render_observation, partial(protocol.render_observation, passages)),
        (protocol.render_observation, partial(protocol.render_observation, [])),
    )
    for method, call in renderings:
        whole = call(None)
        has_text = MARK in whole
        for budget in _budgets():
            try:
                cut = call(budget)
            except ConfigError:  # the tags alone are too long
                continue
            if (length := budget.count(cut)) > budget.max_tokens:
                yield Problem(
                    f"{method.__name__}() gave {length} tokens under a budget of "
                    f"{budget.max_tokens}",
                    "cut the text with budget.cut, wrap it, and measure the whole with "
                    "budget.count",
                    method,
                )
                return
            if tags_in(cut) != tags_in(whole):
                yield Problem(
                    f"{method.__name__}() under a budget of {budget.max_tokens} is "
                    f"{shorten(cut)}: of {' '.join(tags_in(whole))} there is "
                    f"{' '.join(tags_in(cut)) or 'none'}",
                    "cut the text first, then wrap it",
                    method,
                )
                return
            if has_text and budget.max_tokens >= _AMPLE and MARK not in cut:
                yield Problem(
                    f"{method.__name__}() under a budget of {budget.max_tokens} shows nothing of "
                    f"the text: {shorten(cut)}",
                    "show as much as the budget holds",
                    method,
                )
                return
    if "A second text." not in protocol.render_observation(_BENIGN):
        yield Problem(
            "without a budget, render_observation() does not show every passage",
            "show all passages, best first",
            protocol.render_observation,
        )


@criterion(
    "P12",
    "explains its tags in the instruction",
    "A model cannot write tags that it was never told of.",
)
def explains_tags(subject: ProtocolSubject) -> Iterator[Problem]:
    """P12."""
    protocol = subject.protocol
    if "instruction" in subject.settings:
        raise NotApplicable("the instruction is a setting here, and its writer's own")
    turns = [render(protocol, action, "a thought") or "" for action in subject.actions]
    tags = dict.fromkeys(tag for turn in turns for tag in tags_in(turn) if "/" not in tag)
    missing = [tag for tag in (*tags, *subject.wrapper[:1]) if tag not in protocol.instruction]
    if missing:
        yield Problem(
            f"the instruction does not mention {' '.join(missing)}",
            "say in `instruction` what each tag is for, and who may write it",
            type(subject.raw),
        )


def _budgets() -> Iterator[TokenBudget]:
    """Budgets in characters and in words, from too small to ample."""
    for limit in (1, 8, 20, 40, 80, _AMPLE, 400):
        yield TokenBudget(limit, len, lambda text, n: text[: max(n, 0)])
        yield TokenBudget.words(limit)


def _judge(protocol: TagProtocol, turns: Sequence[str]) -> tuple[str | None, float]:
    return protocol.final_answer(turns), protocol.format_score(turns)
