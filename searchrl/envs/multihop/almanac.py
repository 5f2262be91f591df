"""A made-up almanac: towns, people, films and bands, and questions of two and three hops on them.

Owns the world that `multihop` asks about without files. Every name and date is drawn from the world
seed, so no model knows an answer beforehand; every question names its gold passages. Pure: one seed
is one almanac.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from searchrl.core.episode import Passage
from searchrl.envs.formats.dataset import Dataset, divide, gold_passages
from searchrl.envs.formats.questions import Question

_COUNTIES, _TOWNS, _PEOPLE, _FILMS, _BANDS = 8, 26, 80, 60, 40
_COMPARED = 50

_STARTS = "Al Bar Cor Dun Esk Fal Gar Hol Ilk Jor Kel Lor Mar Nor Pel Rav Sel Tor Ul Ven".split()
_MIDDLES = "a e i o u ar en il or un".split()
_TOWN_ENDS = "bury ford ham ley mouth ness stead thorpe wick worth".split()
_PERSON_ENDS = "den gren lin mer nov ric sen ster vik well".split()
_FIRST = (
    "Ada Ben Clara David Elsa Felix Greta Henrik Ines Jonas Karin Leo Mira Nils Olga Piet Rosa "
    "Stefan Tilda Viktor"
).split()
_ADJECTIVES = "Silent Golden Broken Distant Hollow Crimson Restless Frozen Hidden Wandering".split()
_NOUNS = "Harbour Orchard Lantern Winter Compass Meadow Bridge Sparrow Mirror Tide".split()
_PROFESSIONS = "film director,singer,painter,architect,cyclist,botanist".split(",")
_MONTHS = (
    "January February March April May June July August September October November December"
).split()


class _Person(NamedTuple):
    name: str
    born: str
    year: int
    town: int


class _Work(NamedTuple):
    """A film or a band: its year, its town, and who directed it or sings in it."""

    name: str
    year: int
    town: int
    person: int


@lru_cache(maxsize=4)
def make_almanac(world_seed: int, test_frac: float) -> Dataset:
    """The almanac of a seed, its questions divided as those of files are."""
    rng = Random(f"almanac/{world_seed}")
    places = _names(rng, _COUNTIES + _TOWNS, _TOWN_ENDS)
    counties, towns = places[:_COUNTIES], places[_COUNTIES:]
    county_of = [rng.randrange(_COUNTIES) for _ in towns]
    surnames = _names(rng, _PEOPLE, _PERSON_ENDS)
    people = [_draw_person(rng, surname) for surname in surnames]
    titles = [f"The {adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS]
    rng.shuffle(titles)
    # A year of its own for each, so that one of two is always the earlier one.
    years = rng.sample(range(1900, 2021), _FILMS)
    films = [
        _draw_film(rng, title, year, people)
        for title, year in zip(titles[:_FILMS], years, strict=True)
    ]
    bands = [
        _Work(_plural(name.removeprefix("The ")), 1960 + n % 60, rng.randrange(_TOWNS), n % _PEOPLE)
        for n, name in enumerate(titles[_FILMS : _FILMS + _BANDS])
    ]
    articles = [
        *(_about_county(rng, name, towns, county_of, n) for n, name in enumerate(counties)),
        *(_about_town(rng, name, counties[county_of[n]]) for n, name in enumerate(towns)),
        *(_about_person(rng, person, towns) for person in people),
        *(_about_film(film, people, towns) for film in films),
        *(_about_band(band, people, towns) for band in bands),
    ]
    passages = tuple(Passage(title, text, title) for title, text in articles)
    questions = [
        *_chains(films, bands, people, towns, [counties[n] for n in county_of]),
        *_comparisons(rng, films, people),
    ]
    once = {text: (kind, answer, gold) for kind, text, answer, gold in questions}
    numbered = [
        Question(f"almanac-{world_seed}-{n}", text, (answer,), gold, kind)
        for n, (text, (kind, answer, gold)) in enumerate(once.items())
    ]
    return Dataset(
        questions=divide(numbered, test_frac),
        passages=passages,
        key=f"almanac-{world_seed}",
        gold=gold_passages(numbered, passages),
    )


_Asked = tuple[str, str, str, tuple[str, ...]]
"""Kind, question, answer, gold passages."""


def _chains(
    films: list[_Work],
    bands: list[_Work],
    people: list[_Person],
    towns: list[str],
    counties: list[str],
) -> Iterator[_Asked]:
    """Questions whose second article is named by the first. `counties` are those of the towns."""
    for film in films:
        person = people[film.person]
        town, gold = towns[person.town], (film.name, person.name)
        director = f"the director of {film.name}"
        yield "bridge", f"In which town was {director} born?", town, gold
        asked = f"In which county lies the town where {director} was born?"
        yield "three_hop", asked, counties[person.town], (*gold, town)
    for band in bands:
        person = people[band.person]
        asked = f"When was the singer of the band {band.name} born?"
        yield "bridge", asked, person.born, (band.name, person.name)
        asked = f"In which county lies the town that the band {band.name} come from?"
        yield "bridge", asked, counties[band.town], (band.name, towns[band.town])


def _comparisons(rng: Random, films: list[_Work], people: list[_Person]) -> Iterator[_Asked]:
    """Questions that name two things, each with an article of its own."""
    for _ in range(_COMPARED):
        one, other = rng.sample(films, 2)
        first = min(one, other, key=lambda film: film.year).name
        asked = f"Which film came out first, {one.name} or {other.name}?"
        yield "comparison", asked, first, (one.name, other.name)
        a, b = rng.sample(people, 2)
        if rng.random() < 0.5:  # or the answer would nearly always be no
            b = rng.choice([p for p in people if p.town == a.town and p is not a] or [b])
        asked = f"Were {a.name} and {b.name} born in the same town?"
        yield "comparison", asked, "yes" if a.town == b.town else "no", (a.name, b.name)


def _draw_person(rng: Random, surname: str) -> _Person:
    year = rng.randrange(1880, 1996)
    born = f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {year}"
    return _Person(f"{rng.choice(_FIRST)} {surname}", born, year, rng.randrange(_TOWNS))


def _draw_film(rng: Random, title: str, year: int, people: list[_Person]) -> _Work:
    director = rng.randrange(_PEOPLE)
    # Shot elsewhere: its article must not name the town that is asked for.
    towns = [town for town in range(_TOWNS) if town != people[director].town]
    return _Work(title, year, rng.choice(towns), director)


def _about_county(
    rng: Random, name: str, towns: list[str], county_of: list[int], number: int
) -> tuple[str, str]:
    own = [town for town, county in zip(towns, county_of, strict=True) if county == number]
    text = f"The county of {name} has {rng.randrange(20, 900)},000 inhabitants."
    if own:
        text += f" Its seat is {own[0]}."
    return f"{name} (county)", text


def _about_town(rng: Random, name: str, county: str) -> tuple[str, str]:
    return name, (
        f"{name} is a town in the county of {county}. It was first named in a charter of "
        f"{rng.randrange(900, 1600)}."
    )


def _about_person(rng: Random, person: _Person, towns: list[str]) -> tuple[str, str]:
    profession = rng.choice(_PROFESSIONS)
    article = "an" if profession[0] in "aeiou" else "a"
    return person.name, (
        f"{person.name} was born on {person.born} in {towns[person.town]}. "
        f"{person.name.split()[0]} became known as {article} {profession}."
    )


def _about_film(film: _Work, people: list[_Person], towns: list[str]) -> tuple[str, str]:
    return film.name, (
        f"{film.name} is a {film.year} film directed by {people[film.person].name}. "
        f"Most of it was shot in {towns[film.town]}."
    )


def _about_band(band: _Work, people: list[_Person], towns: list[str]) -> tuple[str, str]:
    return band.name, (
        f"{band.name} are a band from {towns[band.town]}, formed in {band.year}. "
        f"Their singer is {people[band.person].name}."
    )


def _plural(name: str) -> str:
    return name + ("es" if name.endswith("s") else "s")


def _names(rng: Random, count: int, ends: list[str]) -> list[str]:
    every = [start + middle + end for start in _STARTS for middle in _MIDDLES for end in ends]
    return rng.sample(every, count)
