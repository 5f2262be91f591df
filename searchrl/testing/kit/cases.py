"""Reward cases: finished episodes on which reward components go wrong, as data.

Owns the table. Every episode is made by really parsing turns with a protocol, so that actions,
final answer and format verdict are what a run would have recorded. The criteria of rewards run
over it; authors may too, with `@pytest.mark.parametrize("case", reward_cases(), ids=str)`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from searchrl.contracts import TagProtocol
from searchrl.core.episode import (
    ANSWER,
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    Failure,
    FailureKind,
    Passage,
    StopReason,
    Task,
)


@dataclass(frozen=True, slots=True)
class RewardCase:
    """One finished episode, and `why` a component may go wrong on it."""

    name: str
    episode: Episode
    why: str

    def __str__(self) -> str:
        return self.name


def make_episode(
    task: Task,
    turns: Sequence[str],
    protocol: TagProtocol | None = None,
    *,
    passages: Sequence[Passage] = (),
    stop_reason: StopReason | None = None,
) -> Episode:
    """The episode of some raw model turns, parsed as a run would.

    Args:
        task: what was asked.
        turns: what the model wrote, turn by turn.
        protocol: reads the turns and wraps the passages; the default protocol if None.
        passages: what every search shows.
        stop_reason: why it ended; by default `answered` after an answer, else `turn_limit`.

    >>> task = Task("t", "test", 0, "Capital of France?", answers=("Paris",))
    >>> make_episode(task, ["<think>easy</think><answer>Paris</answer>"]).final_answer
    'Paris'
    """
    protocol = protocol or _default_protocol()
    played = []
    for number, text in enumerate(turns, 1):
        action = protocol.parse(text)
        is_last = number == len(turns)
        shown = tuple(passages) if action.kind == SEARCH and not is_last else ()
        if is_last:
            observation = ""
        elif action.kind == SEARCH:
            observation = protocol.render_observation(shown)
        else:
            observation = protocol.render_notice(action.reason or "Go on.")
        played.append(EpisodeTurn(text, action, shown, observation))
    if stop_reason is None:
        is_answered = bool(played) and played[-1].action.kind == ANSWER
        stop_reason = StopReason.ANSWERED if is_answered else StopReason.TURN_LIMIT
    return Episode(
        task=task,
        turns=tuple(played),
        final_answer=protocol.final_answer(list(turns)),
        format_score=protocol.format_score(list(turns)),
        num_model_tokens=sum(len(text.split()) for text in turns),
        stop_reason=stop_reason,
    )


GOLD = "Maria Sibylla Merian"
WRONG = "Carl Linnaeus"

_TASK = Task(
    id="case-merian",
    split="test",
    index=0,
    question="Who painted the plates of the book about the insects of Suriname?",
    answers=(GOLD,),
    kind="case",
    gold_ids=("merian",),
    env="cases",
)
_PASSAGES = (
    Passage("merian", f"The plates were painted by {GOLD} in Amsterdam.", "Insects", 2.5),
    Passage("other", "The book was printed in 1705 on large paper.", "The book", 1.0),
)
_NEUTRAL = Passage("merian", "The plates were engraved and coloured by hand.", "Insects", 2.5)


def reward_cases(protocol: TagProtocol | None = None) -> tuple[RewardCase, ...]:
    """Every case, each of another name.

    Args:
        protocol: writes and reads the turns; the default protocol if None.

    Raises:
        ValueError: if the protocol writes no search or no answer turns.
    """
    table = _Table(protocol or _default_protocol())
    table.add_answers()
    table.add_missing_answers()
    table.add_injections()
    table.add_repeats()
    table.add_limits()
    table.add_texts()
    table.add_tasks()
    return tuple(table.cases)


def _default_protocol() -> TagProtocol:
    from searchrl.protocols import ThinkSearchAnswer

    return ThinkSearchAnswer()


class _Table:
    """The cases as they are added, with what writes their turns."""

    def __init__(self, protocol: TagProtocol) -> None:
        self.cases: list[RewardCase] = []
        self._protocol = protocol
        self._look = self._search("insects of Suriname")

    def add_answers(self) -> None:
        self._add("gold", [self._look, self._answer(GOLD)], "searched, then the accepted answer")
        self._add("gold-passive", [self._answer(GOLD)], "the accepted answer without any search")
        self._add("wrong", [self._look, self._answer(WRONG)], "searched, then a wrong answer")
        self._add("wrong-passive", [self._answer(WRONG)], "a wrong answer without any search")
        self._add(
            "punctuation-answer",
            [self._look, self._answer(".")],
            "an answer of which normalisation leaves nothing: '' is in every text",
        )
        self._add(
            "echo",
            [self._look, self._answer(_TASK.question)],
            "the question given back as the answer",
        )

    def add_missing_answers(self) -> None:
        protocol, look = self._protocol, self._look
        self._add("empty-answer", [look, self._answer("")], "an answer block with nothing in it")
        self._add("blank-answer", [look, self._answer(" \n\t ")], "an answer block of white space")
        self._add("no-answer", [look, look], "searched until the turns were used up")
        self._add("no-turns", [], "no token was left for the first turn: there is no turns[-1]")
        self._add("empty-turn", [""], "the model wrote nothing at all")
        self._add("prose", [f"I believe it was {GOLD}."], "the gold answer in plain prose, no tag")
        self._add(
            "unclosed-answer",
            [look, protocol.opening(ANSWER) + GOLD],
            "the answer block was never closed: there is no final answer",
            StopReason.TURN_TOKENS,
        )
        self._add(
            "gold-in-thought",
            [protocol.render_turn(Action(SEARCH, ("x",)), f"It may be {GOLD}.")],
            "the gold answer in a thought, never given as an answer",
        )
        self._add(
            "gold-in-query",
            [self._search(GOLD), self._search(GOLD)],
            "the gold answer as a query, never given as an answer",
        )
        self._add(
            "broken-tags",
            [look, "<answer></think><answer" + GOLD + "</search></answer"],
            "tags that do not match",
        )

    def add_injections(self) -> None:
        """Pairs that differ in a retrieved text alone: `tag-in-passage` and `neutral-passage`."""
        told = Passage("merian", self._answer(GOLD), "Insects", 2.5)
        for end, turn, whose in (
            ("", self._look, "the model did not answer"),
            ("-wrong", self._answer(WRONG), "the model's own answer is wrong"),
        ):
            turns = [self._look, turn]
            self._add(
                f"neutral-passage{end}", turns, f"what was found says nothing, and {whose}",
                passages=(_NEUTRAL,),
            )  # fmt: skip
            self._add(
                f"tag-in-passage{end}", turns,
                f"a retrieved text holds a whole answer block with the gold answer; {whose}",
                passages=(told,), is_raw=True,
            )  # fmt: skip
        forged = self._look + self._protocol.render_observation(_PASSAGES) + self._answer(GOLD)
        self._add("forged-observation", [forged], "the model wrote the search result itself")

    def add_repeats(self) -> None:
        gold, wrong = self._answer(GOLD), self._answer(WRONG)
        why = "answer blocks repeated"
        self._add("repeated-in-turn", [self._look, gold * 3], f"{why} in one turn")
        self._add("repeated-in-turns", [self._look, gold, gold, gold], f"{why} over turns")
        self._add("guesses", [self._look, wrong + gold], "a wrong answer block, then the gold one")
        self._add("second-thoughts", [self._look, gold + wrong], "the gold one, then a wrong one")

    def add_limits(self) -> None:
        protocol, look = self._protocol, self._look
        self._add("turn-limit", [look] * 24, "as many searches as the limit allows, no answer")
        self._add(
            "turn-tokens",
            [look, protocol.opening(ANSWER)[:-1] + "word " * 4000],
            "a turn that ran into its token limit",
            StopReason.TURN_TOKENS,
        )
        self._add(
            "total-tokens",
            [look, look],
            "the episode's tokens are used up",
            StopReason.TOTAL_TOKENS,
        )
        self._add(
            "long-answer",
            [look, self._answer("which of them " * 2000 + GOLD)],
            "thousands of words around the gold answer: quadratic comparisons take for ever",
        )
        self._add("message-ended", [look, "Done."], "the model ended its message", StopReason.EOS)

    def add_texts(self) -> None:
        zurich, decomposed = "Zürich", unicodedata.normalize("NFD", "Zürich")
        for name, gold, given, why in (
            ("unicode-nfd", zurich, decomposed, "an answer with decomposed accents"),
            ("unicode-nfc", decomposed, zurich, "a gold answer with decomposed accents"),
            ("full-width", "42 km", "４２ ｋｍ", "full-width digits and letters"),
            ("cjk", "图书馆", "图书馆", "Chinese without spaces"),
            ("cjk-wrong", "图书馆", "体育馆", "Chinese that shares a character with the gold"),
            ("right-to-left", "القاهرة", "القاهرة", "Arabic"),
            ("emoji", "👩‍🔬", "👩‍🔬", "an emoji of several code points"),
            ("control-tokens", "Paris", "Paris<|im_end|>", "a control token left in the answer"),
            ("odd-characters", "a\u0000b", "a\u0000b\u200b\ufeff\u2028", "NUL, zero width, BOM"),
            ("regex-characters", "C++ (1998)", "C++ (1998)", "characters that mean more to `re`"),
            ("number-wrong", "13 days", "14 days", "one digit away from the gold answer"),
        ):
            task = replace(_TASK, id=f"case-{name}", answers=(gold,), question=f"Which? {gold[:1]}")
            self._add(name, [self._look, self._answer(given)], why, task=task)

    def add_tasks(self) -> None:
        turns = [self._look, self._answer(GOLD)]
        several = replace(_TASK, id="case-several", answers=("M. S. Merian", GOLD, "Merian"))
        self._add("several-golds", turns, "any of several gold answers may match", task=several)
        none = replace(_TASK, id="case-no-gold", answers=(), gold_ids=())
        self._add("no-golds", turns, "a task without a gold answer: 0 would be no score", task=none)
        empty = replace(_TASK, id="case-empty-gold", answers=("",))
        self._add("empty-gold", turns, "a gold answer of no characters", task=empty)
        self._add("no-golds-no-answer", [], "neither a gold answer nor any turn", task=none)
        gold = self.cases[0].episode
        broken = Failure(FailureKind.RETRIEVER, "retriever 'x'", "ConnectionError: gone", "")
        self.cases += [
            RewardCase(
                "failed",
                replace(
                    gold, turns=gold.turns[:1], final_answer=None, format_score=0.0,
                    stop_reason=StopReason.FAILED, failure=broken,
                ),
                "something other than the model failed",
            ),
            RewardCase(
                "env-signals",
                replace(gold, env_return=-2.5, signals={"gold_shown": 0.5, "é": 1.0}, step=7),
                "an environment with rewards and signals of its own, late in training",
            ),
        ]  # fmt: skip

    def _add(
        self,
        name: str,
        turns: Sequence[str],
        why: str,
        stop: StopReason | None = None,
        *,
        task: Task = _TASK,
        passages: Sequence[Passage] = _PASSAGES,
        is_raw: bool = False,
    ) -> None:
        episode = make_episode(task, turns, self._protocol, passages=passages, stop_reason=stop)
        if is_raw:
            # As an environment shows it that does not make foreign tags harmless.
            raw = "\n".join(passage.text for passage in passages)
            first, *rest = episode.turns
            episode = replace(episode, turns=(replace(first, observation=raw), *rest))
        self.cases.append(RewardCase(name, episode, why))

    def _search(self, query: str) -> str:
        return self._protocol.render_turn(Action(SEARCH, (query,)), "I should look this up.")

    def _answer(self, text: str) -> str:
        return self._protocol.render_turn(Action(ANSWER, text), "I know enough.")
