"""Rewards of code, function calls and chat: pure functions of an episode; code is parsed alone.

Each kind of task has facts, numbers from 0 to 1; a reward is a weighted sum of some of them. The
weights of the published one are in `assets/published.toml`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from searchrl.contracts import Episode, Table, Task, Unscored
from searchrl.rewards import em
from searchrl_tasks.calls import call_facts
from searchrl_tasks.code import describe_style, find_code, parse_code
from searchrl_tasks.rows import CALL, CHAT, CODE

Facts = Mapping[str, float]
BAND = (10, 2000)
"""Characters of an answer in chat."""
NGRAM = 3
"""Words in a row that should not come again."""


def code_facts(episode: Episode) -> Facts:
    """Facts about the code in the final answer."""
    answer = episode.final_answer or ""
    code = find_code(answer).strip()
    tree, size = parse_code(code), len(code)
    if not code or (tree is None and not re.search(r"```|\bdef |\bclass ", answer)):
        return {"missing": 1.0}
    documented, hinted = describe_style(tree) if tree else (0.0, 0.0)
    return {
        "syntax": float(tree is not None),
        "broken": float(tree is None),
        "documented": documented,
        "hinted": hinted,
        "short": float(size < 20),
        "fits": float(50 < size < 2000),
        "tidy": float(tree is not None and 20 <= size < 2000),
        "overlap": _overlap(code, "".join(episode.task.answers[:1])),
    }


def chat_facts(episode: Episode) -> Facts:
    """Facts about the words of the final answer."""
    answer = (episode.final_answer or "").strip()
    words, size = answer.casefold().split(), len(answer)
    runs = [*zip(*(words[at:] for at in range(NGRAM)), strict=False)]
    length = min(1.0, size / BAND[0], BAND[1] / max(1, size))
    facts = {"fresh": length * len({*runs}) / len(runs) if runs else length}
    if size < 10:
        return facts | {"short": 1.0}
    varied = len({*words}) / len(words) if len(words) > 5 else 0.5
    return facts | {
        "long": float(size > 50),
        "repetitive": float(varied < 0.3),
        "varied": float(varied > 0.7),
        "asked": _overlap(answer, episode.task.question),
        "overlap": _overlap(answer, "".join(episode.task.answers[:1])),
    }


def _overlap(text: str, other: str) -> float:
    """The share of the words of another text, but for short ones, that a text has."""
    words, wanted = ({*re.findall(r"\w{4,}", one.casefold())} for one in (text, other))
    return len(words & wanted) / max(1, len(wanted))


FACTS: Mapping[str, Callable[[Episode], Facts]] = {
    CODE: code_facts,
    CALL: call_facts,
    CHAT: chat_facts,
}
Rules = Mapping[str, tuple[str, Facts]]
"""The name and the weights of the reward of a kind."""


class Weighted:
    """A weighted sum of facts of the task's kind; every row has a table that names it.

    One with rules for several kinds gives tasks of other kinds, such as searches, the exact match.
    """

    is_range = True

    def __init__(
        self, name: str, rules: Rules, low: float = 0.0, normalization: str = "N1"
    ) -> None:
        self.name, self.values, self.rules = name, (low, 1.0), rules
        self.normalization = normalization

    def applies(self, task: Task) -> bool:
        """True for tasks of a kind with a rule, and for all tasks if there are several rules."""
        return len(self.rules) > 1 or task.kind in self.rules

    def __call__(self, episode: Episode) -> float | Unscored:
        """Score an episode by its task's kind."""
        task = episode.task
        if task.kind in self.rules:
            facts, weights = FACTS[task.kind](episode), self.rules[task.kind][1]
            total = math.fsum(weight * facts.get(name, 0.0) for name, weight in weights.items())
            return max(self.values[0], min(1.0, total))
        if not task.answers:
            return Unscored(f"task {task.id!r} of kind '{task.kind}' has no answer to compare with")
        return em(episode.final_answer, task.answers, self.normalization)

    def draw_episode(self, episode: Episode) -> list[Table]:
        """Which reward was chosen, and what it saw."""
        kind = episode.task.kind
        chosen = self.rules[kind][0] if kind in self.rules else "em"
        facts = FACTS[kind](episode) if kind in self.rules else {}
        return [Table(f"{self.name}: {chosen}", ["fact", "value"], [*facts.items()])]


SYNTAX: Rules = {CODE: ("code_syntax", {"syntax": 1.0})}
STYLE: Rules = {CODE: ("code_style", dict.fromkeys(("documented", "hinted", "tidy"), 1 / 3))}
CALLED = dict.fromkeys(("json", "known", "name", "required", "types", "values"), 1 / 6)
CALLS: Rules = {CALL: ("function_call", CALLED)}
CHATS: Rules = {CHAT: ("chat", {"fresh": 1.0})}
HALVES = {name: one / 2 for own in (SYNTAX, STYLE) for name, one in own[CODE][1].items()}
CODES: Rules = {CODE: ("0.5*code_syntax+0.5*code_style", HALVES)}

make_code_syntax = partial(Weighted, "code_syntax", SYNTAX)
make_code_style = partial(Weighted, "code_style", STYLE)
make_function_call = partial(Weighted, "function_call", CALLS)
make_chat = partial(Weighted, "chat", CHATS)
make_auto = partial(Weighted, "auto", {**CODES, **CALLS, **CHATS})


def make_published(normalization: str = "N1") -> Weighted:
    """The published numbers for the task's kind."""
    text = Path(__file__).with_name("assets").joinpath("published.toml").read_text("utf-8")
    rules = {kind: (kind, weights) for kind, weights in tomllib.loads(text).items()}
    return Weighted("published", rules, -1.0, normalization)
