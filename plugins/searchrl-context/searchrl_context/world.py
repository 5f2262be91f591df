"""`dossier`: four seals in six pages, a world in which an early page must be remembered.

The pages are those of handbooks of `regulations`; one sentence of four of them is about a seal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from threading import Lock
from typing import Annotated, Any, ClassVar

from pydantic import Field

from searchrl import make_env
from searchrl.contracts import ANSWER, SEARCH, Action, Passage, TagProtocol, Task
from searchrl.envs import Found, SearchSettings, TextEnv
from searchrl_context.env import REQUEST

NAMES = """Abel Ada Ben Brand Cole Cora Dahl Dov Ekman Elif Finn Fuchs Gerda Gruber Holm Hugo Ilves
    Ines Jon Jung Kaya Kern Leo Lind Mina Moser Nils Nowak Olga Orban Paul""".split()
SEALS = "amber coral ivory jade pearl ruby slate topaz".split()
SPLITS = {"train": 20_000, "validation": 500, "test": 1_000}
SEAL = re.compile(r"Seal: (\w+) (\w+)\.")


@dataclass(frozen=True, kw_only=True)
class DossierSettings(SearchSettings):
    """Settings of every search environment.

    Attributes:
        articles: articles of a handbook on a page; 28 are 300 tokens for the model of the study.
    """

    max_turns: int = 9
    articles: Annotated[int, Field(ge=1, le=60)] = 28


class DossierEnv(TextEnv):
    """Questions for the seals of four people; a search names a page by its title.

    Each has a dossier of two pages. Two of the seals stand on the second one.
    """

    name: ClassVar[str] = "dossier"
    splits = tuple(SPLITS)
    settings_type: ClassVar[type[SearchSettings]] = DossierSettings
    settings: DossierSettings

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`."""
        return SPLITS[self.ensure_split(split)]

    def make_task(self, split: str, index: int) -> Task:
        """Task `index`: four people and their seals."""
        rng = Random(f"dossier/{self.world_seed}/{split}/{index}")
        people = rng.sample(NAMES, 4)
        seals = [rng.choice(SEALS) for _ in people]
        pages = rng.sample([1, 1, 2, 2], 4)
        with _MAKING:  # once, however many episodes begin at the same time
            articles = _articles(split)
        texts = {}
        for person, seal, place in zip(people, seals, pages, strict=True):
            for page in (1, 2):
                lines = rng.sample(articles, self.settings.articles)
                if page == place:
                    line = f"Seal: {tell({person: seal})}."
                    lines.insert(rng.randrange(len(lines) + 1), line)
                texts[f"{person}, page {page}"] = " ".join(lines)
        gold = [f"{person}, page {page}" for person, page in zip(people, pages, strict=True)]
        return Task(
            id=f"dossier-{split}-{index}",
            split=split,
            index=index,
            question=f"Which seals have {', '.join(people)}?",
            answers=(tell(dict(zip(people, seals, strict=True))),),
            gold_ids=tuple(gold),
            env=self.name,
            meta={"texts": texts, "people": people},
        )

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """The eight pages."""
        texts = task.meta.get("texts", {})  # a user's question has none
        return task.id, [Passage(title, text, title) for title, text in texts.items()]

    def look_up(self, task: Task, action: Action, turn: str) -> Found:
        """Show the page whose title is the first query."""
        title = action.queries[0].casefold()
        found = tuple(one for one in self.passages(task)[1] if one.title.casefold() == title)
        shown = self._ordered(task, found)
        return Found(shown, self.protocol.render_observation(shown, self.budget))


@lru_cache(maxsize=8)
def _articles(split: str) -> list[str]:
    """The articles of some handbooks of `regulations`."""
    env: Any = make_env("regulations", difficulty="easy").unwrapped
    tasks = [env.make_task(split, index) for index in range(40 if split == "train" else 8)]
    return [one.text for task in tasks for one in env.passages(task)[1]]


_MAKING = Lock()


def tell(seals: dict[str, str]) -> str:
    """Return seals by person in words, as pages put them."""
    return ", ".join(map(" ".join, seals.items()))


class Clerk:
    """Reads page after page, and answers with what it was shown or wrote down.

    It looks for the first seal that it has not. `forgets` is the chance that a summary leaves out a
    seal; None: it writes nothing down, and answers with what its context still shows.
    """

    def __init__(
        self, env: Any, task: Task, protocol: TagProtocol, forgets: float | None = 0.0
    ) -> None:
        self._people, self._protocol, self._question = task.meta["people"], protocol, task.question
        self._forgets, self._rng = forgets, Random(f"clerk/{task.id}")
        self._known: dict[str, str] = {}
        self._found: set[str] = set()
        self._last = ("", 2)

    def act(self, observation: str) -> str:
        """Return the next turn."""
        shown = dict(SEAL.findall(observation))
        if self._forgets is None and self._question in observation:  # a context begins
            self._known = {}
        self._known |= shown
        self._found |= {*shown}
        if self._forgets is not None and REQUEST.split(":")[0] in observation:
            known = [person for person in self._people if person in self._known]
            kept = {p: self._known[p] for p in known if self._rng.random() >= self._forgets}
            self._known, self._found = kept, {*kept}
            return f"<summary> {tell(kept) or 'nothing'} </summary>"
        thought = "Found." if shown else "Not here." if self._last[0] else "Next."
        unknown = [person for person in self._people if person not in self._found]
        if not unknown:
            answer = tell({person: self._known.get(person, SEALS[0]) for person in self._people})
            return self._protocol.render_turn(Action(ANSWER, answer), thought)
        page = 2 if self._last == (unknown[0], 1) else 1
        self._last = unknown[0], page
        query = f"{unknown[0]}, page {page}"
        return self._protocol.render_turn(Action(SEARCH, (query,)), thought)


def make_habit(env: Any, task: Task, protocol: TagProtocol) -> Clerk:
    """Reads as the clerk does, and leaves a sixth of the seals out of each summary."""
    return Clerk(env, task, protocol, forgets=1 / 6)


def make_rule(env: Any, task: Task, protocol: TagProtocol) -> Clerk:
    """Keeps no notes, in thoughts neither: what its context does not show any more is a guess."""
    return Clerk(env, task, protocol, forgets=None)
