"""`credit`: five turns of which the second decides, a world to compare algorithms in.

An archive has four registers, which lead on alike. Where a deed was signed, only the register of
the person's trade knows, by a table that nobody tells; the others name other towns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from searchrl.contracts import ANSWER, SEARCH, Action, Passage, TagProtocol, Task
from searchrl.envs import Found, SearchSettings, TextEnv

REGISTERS = "court guild parish toll".split()
TRADES = "baker miller potter weaver".split()
FIRST = "Ada Ben Cora Dov Elif Finn Gerda Hugo Ines Jon Kaya Leo Mina Nils Olga Paul".split()
LAST = (
    "Brook Croft Dale Firth Glen Heath Knoll Lund Marsh Moor Peak Reed Shaw Stone Vale Wood".split()
)
TOWNS = "Alcombe Belford Corwick Dalham Elmere Fenton Garholm Harwell".split()
TREES = "ash bay beech birch cedar elm fir maple oak pine plum willow".split()
COLOURS = "blue brown coral cream gold green grey jade pink red teal white".split()
_SPLITS = {"train": (20_000, 0, 12), "validation": (500, 12, 14), "test": (1_000, 14, 16)}


@dataclass(frozen=True, kw_only=True)
class CreditSettings(SearchSettings):
    """Settings of every search environment, with as many turns as the way has."""

    max_turns: int = 5


class CreditEnv(TextEnv):
    """Questions for the town where a deed was signed; a search names one thing by its title."""

    name: ClassVar[str] = "credit"
    splits = tuple(_SPLITS)
    settings_type: ClassVar[type[SearchSettings]] = CreditSettings

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`."""
        return _SPLITS[self.ensure_split(split)][0]

    def make_task(self, split: str, index: int) -> Task:
        """Task `index`: a trade, and a full name that is in no other split."""
        rng = Random(f"credit/{self.world_seed}/{split}/{index}")
        first, trade = rng.randrange(len(FIRST)), rng.choice(TRADES)
        name = f"{FIRST[first]} {LAST[(first + rng.randrange(*_SPLITS[split][1:])) % len(LAST)]}"
        right = Random(f"credit/{self.world_seed}").sample(REGISTERS, 4)[TRADES.index(trade)]
        towns = dict(zip(REGISTERS, rng.sample(TOWNS, len(REGISTERS)), strict=True))
        trees, colours = rng.sample(TREES, 12), rng.sample(COLOURS, 12)
        texts = {f"deed of {name}": ", ".join(REGISTERS)}
        for register, town in towns.items():
            books = [f"book {trees.pop()}" for _ in range(3)]
            pages = [f"page {colours.pop()}" for _ in range(3)]
            texts[register] = ", ".join(books)
            texts |= dict.fromkeys(books, ", ".join(pages))
            texts |= dict.fromkeys(pages, f"signed in {town}")
        return Task(
            id=f"credit-{split}-{index}",
            split=split,
            index=index,
            question=f"Where was the deed of {name} the {trade} signed?",
            answers=(f"in {towns[right]}", towns[right]),
            gold_ids=(right,),
            env=self.name,
            meta={"texts": texts, "trade": trade},
        )

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The deed, the registers, and in each register three books and three pages."""
        texts = task.meta.get("texts", {})  # a user's question has none
        return task.id, [Passage(title, text, title) for title, text in texts.items()]

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Show what has the title that is the first query."""
        title = action.queries[0].casefold()
        found = tuple(one for one in self.passages(task)[1] if one.title.casefold() == title)
        shown = self._ordered(task, found)
        return Found(shown, self.protocol.render_observation(shown, self.budget))


class Clerk:
    """Goes the whole way through a register, by default the right one."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol, register: str = "") -> None:
        texts, rng = task.meta["texts"], Random(f"clerk/{task.id}")
        titles = [next(iter(texts)), register or task.gold_ids[0]]
        while "signed in " not in (text := texts[titles[-1]]):
            titles.append(rng.choice(text.split(", ")))
        answer = Action(ANSWER, text.removeprefix("signed "))
        thoughts = ["Next.", f"For the {task.meta['trade']}.", "Next.", "Next."]
        turns = [Action(SEARCH, (title,)) for title in titles]
        self.turns = [*map(protocol.render_turn, turns, thoughts)]
        self.turns.append(protocol.render_turn(answer, "I know enough to answer."))

    def act(self, observation: str) -> str:
        """Return the next turn."""
        return self.turns.pop(0)


def make_habit(env: Any, task: Task, protocol: TagProtocol) -> Clerk:
    """Plays all turns well, and takes a register by habit: right as often as a random one."""
    right = REGISTERS.index(task.gold_ids[0])
    turned = REGISTERS[right:] + REGISTERS[:right]
    (register,) = Random(f"habit/{task.id}").choices(turned, (2, 4, 1, 1))
    return Clerk(env, task, protocol, register)
