"""`credit`: five turns of which the second decides, a world to compare algorithms in.

All four registers of an archive know everybody, and lead on alike. The letter is where the register
of the person's trade says, by a table that nobody tells; the others say another town.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from searchrl.contracts import ANSWER, SEARCH, Action, Passage, TagProtocol, Task
from searchrl.envs import Found, SearchSettings, TextEnv

REGISTERS = "court guild parish toll".split()
TRADES = "baker carver dyer glazier miller potter tanner weaver".split()
FIRST = "Ada Ben Cora Dov Elif Finn Gerda Hugo Ines Jon Kaya Leo Mina Nils Olga Paul".split()
LAST = (
    "Brook Croft Dale Firth Glen Heath Knoll Lund Marsh Moor Peak Reed Shaw Stone Vale Wood".split()
)
TOWNS = "Alcombe Belford Corwick Dalham Elmere Fenton Garholm Harwell".split()
BOXES = "amber ash bay beech birch box cedar coral elm fern fig fir flint hazel iris ivy".split()
BOXES += "jade jet lilac lime maple moss oak opal pearl pine plum rose rush sage slate yew".split()
_SPLITS = {"train": (20_000, 0, 12), "validation": (500, 12, 14), "test": (1_000, 14, 16)}


@dataclass(frozen=True, kw_only=True)
class CreditSettings(SearchSettings):
    """Settings of every search environment, with as many turns as the way has."""

    max_turns: int = 5


class CreditEnv(TextEnv):
    """Where was a letter written? A search calls for one thing by its title."""

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
        towns = dict(zip(REGISTERS, rng.sample(TOWNS, len(REGISTERS)), strict=True))
        table = Random(f"credit/{self.world_seed}").sample(REGISTERS * 2, len(TRADES))
        register = table[TRADES.index(trade)]
        return Task(
            id=f"credit-{split}-{index}",
            split=split,
            index=index,
            question=f"Where was the letter of {name} the {trade} written?",
            answers=(towns[register],),
            gold_ids=(register,),
            env=self.name,
            meta={"name": name, "towns": towns, "boxes": rng.sample(BOXES, 24)},
        )

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The person, the registers, and in each register three books and three letters."""
        if not task.meta:  # a user's question
            return task.id, []
        made = {task.meta["name"]: f"see {', '.join(REGISTERS)}"}
        for place, (register, town) in enumerate(task.meta["towns"].items()):
            books, letters = (task.meta["boxes"][n : n + 3] for n in (6 * place, 6 * place + 3))
            made[register] = f"found in {', '.join(books)}"
            made |= {book: f"copied in {', '.join(letters)}" for book in books}
            made |= {letter: f"written in {town}" for letter in letters}
        return task.id, [Passage(title, text, title) for title, text in made.items()]

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Show what has the title that is the first query."""
        title = action.queries[0].casefold()
        shown = tuple(one for one in self.passages(task)[1] if one.title.casefold() == title)
        return Found(shown, self.protocol.render_observation(shown, self.budget))


class Clerk:
    """Goes the whole way through one register, by books and letters at random."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol, register: str) -> None:
        self.env, self.protocol, self.task = env.unwrapped, protocol, task
        self.rng, self.titles = Random(f"clerk/{task.id}"), [task.meta["name"], register]

    def act(self, observation: str) -> str:
        """Call for the next thing; answer what a letter says."""
        text = " ".join(one.text for one in self.env.last_passages)
        if text.startswith("written in "):
            answer = Action(ANSWER, text.removeprefix("written in "))
            return self.protocol.render_turn(answer, "I know enough to answer.")
        listed = text.partition(" in ")[2].split(", ")
        title = self.titles.pop(0) if self.titles else self.rng.choice(listed)
        return self.protocol.render_turn(Action(SEARCH, (title,)), "I should look this up.")


def make_expert(env: Any, task: Task, protocol: TagProtocol) -> Clerk:
    """Goes through the right register."""
    return Clerk(env, task, protocol, task.gold_ids[0])


def make_random(env: Any, task: Task, protocol: TagProtocol) -> Clerk:
    """Plays all turns well, and takes a register at random."""
    return Clerk(env, task, protocol, Random(f"register/{task.id}").choice(REGISTERS))
