"""The environment `facts`: chains of two and three made-up facts, each in a passage of its own.

A country has people, towns, companies and books; its names are in no other country's split.
Which relations follow each other, some relations altogether, and some wordings are the test split's
alone. Pure: a function of (split, index, world_seed).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from searchrl.contracts import Passage, Task
from searchrl.envs import SearchSettings, TextEnv

NUM_COUNTRIES: Mapping[str, int] = {"train": 8000, "validation": 64, "test": 128}
TASKS_PER_COUNTRY = 4
UNSEEN_SHARE = 0.0625
"""The share of the test split's wordings that no other split has."""
UNSEEN, SEEN = "unseen_wording", "seen_wording"
UNSEEN_RELATION = "unseen_relation"

FIRST = tuple(
    "Ada Anton Berta Carl Clara David Dora Edgar Elsa Emil Felix Flora Gerda Greta Hanna Hugo Ida "
    "Ines Jonas Karin Leo Lotte Martha Nils Olga Oscar Paula Rosa Simon Tilda Viktor Wanda".split()
)
LAST = tuple(
    "Abbott Becker Blythe Brandt Calder Carver Crane Denby Drury Eckert Fisk Forster Garnett "
    "Graves Haldane Harker Hobbs Ingram Jarvis Kemp Kipling Lambert Lorenz Munro Nash Oakley Paget "
    "Quill Radley Sorrel Thorne Yates".split()
)
PLACE = tuple(
    "Abbey Black Bridge Broad Castle Deep East Fair Great Green Grey High Little Long Lower Market "
    "North Old Red South Stony Upper West White".split()
)
WORDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "person": (FIRST, LAST),
    "town": (PLACE, tuple("Alcombe Barnley Belford Corwick Dalham Elmere Fenton Garholm Harwell "
                          "Ilbury Kelsey Linton Marwick Norden Orham Porston".split())),
    "company": (LAST, tuple("Bakery Brewery Foundry Looms Mills Motors Press Steel".split())),
    "book": (PLACE, tuple("Garden Harvest Lantern Letter Mirror Morning Orchard Shore".split())),
}  # fmt: skip
COUNTS: Mapping[str, int] = {"person": 9, "town": 6, "company": 5, "book": 5}


class Relation(NamedTuple):
    """A relation of two kinds of things, with the wordings of its facts and descriptions.

    `{s}` and `{o}` are the two names. The last wordings are the test split's alone.
    """

    key: str
    subject: str
    object: str
    facts: tuple[str, ...]
    descriptions: tuple[str, ...]


def _read_relations() -> Iterator[Relation]:
    text = Path(__file__).with_name("assets").joinpath("relations.txt").read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for at in range(0, len(lines), 3):
        key, subject, object_ = lines[at].split()
        yield Relation(key, subject, object_, _split(lines[at + 1]), _split(lines[at + 2]))


def _split(line: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in line.split("|"))


RELATIONS = tuple(_read_relations())
HELD_OUT = frozenset({"doctor"})
"""Relations that only the test split asks for."""
HELD_OUT_PAIRS = frozenset({("founder", "birthplace"), ("author", "teacher"), ("seat", "mayor"),
                            ("mayor", "friend"), ("employer", "seat")})  # fmt: skip
"""Relations that follow each other in the test split alone."""

_STYLE = (0.75, 0.15, 0.1)
"""Shares of the seen wordings in passages. Questions ask in all ways alike."""
_LETTERS = ("bdfghklmnprstvz", "aeiou", "dklmnprt")
_ASKS = (
    "What is {d}?",
    "Please name {d}.",
    "I want to know {d}.",
    "Tell me {d}.",
)
"""The last one is the test split's alone. Persons are asked for in the same way."""

_UNSEEN = {_ASKS[-1], *(one.descriptions[-1] for one in RELATIONS)}


class Fact(NamedTuple):
    """One relation of one thing, and the passage that says so."""

    relation: Relation
    subject: str
    object: str
    passage: Passage
    is_seen: bool


Country = Mapping[tuple[str, str], Fact]
"""Facts by (relation, subject)."""


@lru_cache(maxsize=256)
def make_country(world_seed: int, split: str, number: int) -> Country:
    """Country `number` of a split."""
    rng = Random(f"facts/{world_seed}/{split}/{number}")
    names = {kind: _draw_names(kind, split, rng) for kind in WORDS}
    facts: dict[tuple[str, str], Fact] = {}
    for relation in (*RELATIONS, *_make_up_relations(rng)):
        for subject in names[relation.subject]:
            others = [one for one in names[relation.object] if one != subject]
            value = rng.choice(others)
            wording = _choose(relation.facts, split, rng, _STYLE)
            text = f"{wording.format(s=subject, o=value)}."
            passage = Passage(f"{relation.key}/{subject}", text[0].upper() + text[1:], subject)
            is_seen = wording != relation.facts[-1]
            facts[relation.key, subject] = Fact(relation, subject, value, passage, is_seen)
    return facts


def _make_up_relations(rng: Random) -> Iterator[Relation]:
    """Two with a word that no language has."""
    for subject in ("person", "town"):
        word = "".join(rng.choice(letters) for letters in (*_LETTERS, *_LETTERS))
        object_ = rng.choice([*WORDS])
        facts = (f"{{o}} is the {word} of {{s}}", f"{{s}} {word}s {{o}}", "")
        descriptions = (f"the {word} of {{s}}", f"the {object_} that {{s}} {word}s", "")
        yield Relation(word, subject, object_, facts, descriptions)


def _draw_names(kind: str, split: str, rng: Random) -> list[str]:
    """Pairs of words: each word is in all splits, each pair in one."""
    firsts, lasts = WORDS[kind]
    shares = {"test": range(2), "validation": range(2, 3), "train": range(3, 10)}[split]
    names: list[str] = []
    while len(names) < COUNTS[kind]:
        first, last = rng.choice(firsts), rng.choice(lasts)
        name = f"{first} {last}"
        if Random(f"name/{kind}/{name}").randrange(10) in shares and name not in names:
            names.append(name)
    return names


@dataclass(frozen=True, kw_only=True)
class FactsSettings(SearchSettings):
    """Settings of `facts`: those of every search environment, and the hops of its tasks."""

    max_turns: int = 5
    topk: int = 2
    hops: tuple[int, ...] = (2, 3)


class FactsEnv(TextEnv):
    """Questions whose answer is two or three facts away."""

    name: ClassVar[str] = "facts"
    splits = ("train", "validation", "test")
    settings_type: ClassVar[type[SearchSettings]] = FactsSettings
    settings: FactsSettings

    def num_tasks(self, split: str) -> int:
        """The number of tasks of `split`."""
        return NUM_COUNTRIES[self.ensure_split(split)] * TASKS_PER_COUNTRY

    def passages(self, task: Task) -> tuple[str, Sequence[Passage]]:
        """All passages of the task's country."""
        number = task.index % NUM_COUNTRIES[task.split]
        country = make_country(self.world_seed, task.split, number)
        passages = tuple(fact.passage for fact in country.values())
        return f"facts/{self.world_seed}/{task.split}/{number}", passages

    def gold_passages(self, task: Task) -> Sequence[Passage]:
        """The facts of the chain, in order."""
        known = {one.id: one for one in self.passages(task)[1]}
        return [known[name] for name in task.gold_ids]

    def make_task(self, split: str, index: int) -> Task:
        """Task `index`: a chain through the country of that number."""
        number = index % NUM_COUNTRIES[split]
        rng = Random(f"task/{self.world_seed}/{split}/{index}")
        country = make_country(self.world_seed, split, number)
        hops = self.settings.hops[
            sum(divmod(index, NUM_COUNTRIES[split])) % len(self.settings.hops)
        ]
        chain = next(_chains(country, hops, split, rng))
        described, queries, used = chain[0].subject, [], list[str]()
        for fact in chain:
            description = _choose(fact.relation.descriptions, split, rng)
            described = description.format(s=described)
            used.append(description)
            queries.append(_tries(fact, description, rng))
        used.append(_choose(_ASKS, split, rng))
        question = used[-1].format(d=described)
        is_seen = all(fact.is_seen for fact in chain) and not _UNSEEN.intersection(used)
        slices = [SEEN if is_seen else UNSEEN]
        if any(fact.relation.key in HELD_OUT for fact in chain):
            slices.append(UNSEEN_RELATION)
        return Task(
            id=f"facts-{split}-{index}",
            split=split,
            index=index,
            question=question,
            answers=(chain[-1].object,),
            kind=f"{hops}_hops",
            gold_ids=tuple(fact.passage.id for fact in chain),
            env=self.name,
            slices=tuple(slices) if split == "test" else (),
            meta={"queries": queries},
        )


def _tries(fact: Fact, description: str, rng: Random) -> list[str]:
    """The queries to try, one after the other: every way to ask, in random order."""
    seen = fact.relation.descriptions[:-1]
    descriptions = dict.fromkeys(rng.sample((description, *seen), len(seen) + 1))
    return [one.format(s=fact.subject).removeprefix("the ") for one in descriptions]


def _choose(
    wordings: Sequence[str], split: str, rng: Random, weights: Sequence[float] = (1.0, 1.0, 1.0)
) -> str:
    """One that was seen; in the test split, one in sixteen is the last, which was not."""
    if split == "test" and wordings[-1] and rng.random() < UNSEEN_SHARE:
        return wordings[-1]
    seen = wordings[:-1]
    return rng.choices(seen, weights[: len(seen)])[0]


def _chains(country: Country, hops: int, split: str, rng: Random) -> Iterator[list[Fact]]:
    """Chains that the split may ask for, at random, without end."""
    facts = list(country.values())
    while True:
        chain = [rng.choice(facts)]
        while len(chain) < hops:
            after = [fact for fact in facts if fact.subject == chain[-1].object]
            if not after:
                break
            chain.append(rng.choice(after))
        keys = [fact.relation.key for fact in chain]
        is_new = set(pairwise(keys)) & HELD_OUT_PAIRS or HELD_OUT & set(keys)
        subjects = {fact.subject for fact in chain}
        is_chain = len(chain) == hops == len(subjects) and chain[-1].object not in subjects
        if is_chain and (split == "test" or not is_new):
            yield chain
