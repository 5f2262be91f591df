"""Names and values that a school draws: people, places, rooms, times, sums, dates.

Owns the pools and the domains, which are wide on purpose: a constant or memorised answer must be
worthless. Holds no wording (see `daily`, `office`, `chains`). Called by `school.py`, and by the
scripted policies for a plausible guess.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST_NAMES = _words(
    "Alba Anton Arne Basil Berit Bruno Carla Cedric Celia Clara Conrad Dagny Dario Delia Edda "
    "Edgar Elias Elin Emil Enid Esther Fabian Felix Fergus Fiona Flora Freya Gideon Greta Gustav "
    "Hanna Hector Hilda Hugo Ida Ilse Ines Ivo Jonas Julia Kasper Katja Lars Leona Linus Lotta "
    "Magnus Mara Marlon Mila Nadia Nils Nora Olga Orla Oscar Petra Quentin Ramon Rhea Rosa Rufus "
    "Selma Silas Tamsin Tilda Tobias Ulla Vera Viktor Wanda Wilma"
)
LAST_NAMES = _words(
    "Abbott Amsel Ashdown Barlow Beck Birtle Blythe Bower Brandt Brooke Calder Carver Cobb Corwin "
    "Crane Dahl Denby Drury Eames Eckert Elwood Fenn Fisk Forster Gale Garnett Gill Graves Haldane "
    "Harker Hobbs Holt Ingram Jarvis Kemp Kern Kipling Lambert Larch Lorenz Lund Marlow Meers Moss "
    "Munro Nash Norden Oakley Orme Paget Penn Perrin Quill Radley Reeve Rowan Sayer Selby Sharpe "
    "Sorrel Stamm Stroud Tate Thorne Tully Upton Vance Vogel Wade Weller Winter Yates"
)
PLACE_NAMES = _words(
    "Alder Amber Aspen Bay Birch Briar Cedar Cherry Clover Copper Coral Cypress Elder Elm Fern "
    "Flint Garnet Granite Hazel Heather Heron Holly Ivory Jasper Juniper Kestrel Larch Laurel "
    "Lilac Linden Lotus Magpie Maple Marble Myrtle Nettle Olive Opal Orchid Osprey Pearl Pine "
    "Plover Poplar Quartz Raven Robin Rowan Saffron Sage Sorrel Spruce Starling Swan Tansy "
    "Thistle Topaz Tulip Violet Walnut Willow Wren Yarrow Yew"
)
_BUILDINGS = ("House", "Hall", "Lodge", "Wing")
_SCHOOL_HEADS = _words(
    "Ald Ash Bar Bex Bram Brack Brin Cald Carl Cher Clay Cob Crad Dal Den Dor Dun Eas Eld Elm "
    "Fair Far Fen Gar Glen Gran Had Hal Ham Har Hart Haw Hol Hurst Ing Kel Kes Kirk Lang Lark Led "
    "Lin Mar Mel Mid Mil Nor Oak Old Or Pen Pol Quen Rad Red Ros Rush Sal Sel Shel Stan Stoke "
    "Sut Thorn Til Tor Up Wal War Wel Whit Wil Win Wood Yar"
)
_SCHOOL_TAILS = _words(
    "beck berry borough bourne bridge brook burgh bury by cliff combe cote croft dale dean den "
    "don down field fold ford garth gate grove ham hampton haven hay head hill holm hope hurst "
    "ington lake land leigh ley low march mead mere mill minster moor mouth ness over pool port "
    "ridge sett shaw stead stock stone stow thorpe ton tree vale wade water way well wick wold "
    "worth yard"
)
_SCHOOL_TYPES = ("School", "Academy", "College", "High")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


class ValueKind(StrEnum):
    """What an article states; each kind has its own domain."""

    NUMBER = "number"
    """A whole number, 11 to 98."""
    EXTENSION = "extension"
    """Four digits: a telephone extension or a code."""
    MONEY = "money"
    """A sum, £11 to £98."""
    MORNING = "morning"
    """A time between 06:30 and 11:25."""
    MIDDAY = "midday"
    """A time between 10:00 and 14:55."""
    AFTERNOON = "afternoon"
    """A time between 13:00 and 19:55."""
    DATE = "date"
    """A day and a month."""
    ROOM = "room"
    """A letter and three digits."""
    PERSON = "person"
    """A first and a last name."""
    BUILDING = "building"
    """A house of the school."""
    FORM = "form"
    """A form with its number."""
    FUND = "fund"
    """A fund that pays for things."""


_WINDOWS = {
    ValueKind.MORNING: (6 * 60 + 30, 11 * 60 + 30),
    ValueKind.MIDDAY: (10 * 60, 15 * 60),
    ValueKind.AFTERNOON: (13 * 60, 20 * 60),
}


def draw_value(kind: ValueKind, rng: Random) -> str:
    """Draw a value of `kind`, uniform over at least 60 values."""
    if kind in _WINDOWS:
        minutes = rng.randrange(*_WINDOWS[kind], 5)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"
    match kind:
        case ValueKind.NUMBER:
            return str(rng.randrange(11, 99))
        case ValueKind.EXTENSION:
            return str(rng.randrange(1000, 10000))
        case ValueKind.MONEY:
            return f"£{rng.randrange(11, 99)}"
        case ValueKind.DATE:
            return f"{rng.randrange(1, 29)} {rng.choice(_MONTHS)}"
        case ValueKind.ROOM:
            return f"{rng.choice('ABCDEFGH')}{rng.randrange(100, 500)}"
        case ValueKind.PERSON:
            return f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}"
        case ValueKind.BUILDING:
            return f"{rng.choice(PLACE_NAMES)} {rng.choice(_BUILDINGS)}"
        case ValueKind.FORM:
            return f"form {rng.choice('KLMNPRSTVW')}{rng.randrange(10, 100)}"
        case ValueKind.FUND:
            return f"{rng.choice(LAST_NAMES)} Fund"
    raise ValueError(f"no domain for {kind!r}")


def telling_words(name: str) -> list[str]:
    """The words that tell a name from others of its kind: `Fern Wing` is `Fern`."""
    return [word for word in name.split() if word not in _COMMON_WORDS]


class DistinctValues:
    """Draws values of which no two of a school share a word: names stay unambiguous."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._used: set[str] = set()

    def draw(self, kind: ValueKind) -> str:
        """Draw a value of `kind` none of whose telling words was drawn before."""
        while True:
            value = draw_value(kind, self._rng)
            words = telling_words(value)
            if kind not in _NAMED or not self._used.intersection(words):
                self._used.update(words)
                return value


_NAMED = (ValueKind.ROOM, ValueKind.PERSON, ValueKind.BUILDING, ValueKind.FORM, ValueKind.FUND)
_COMMON_WORDS = frozenset((*_BUILDINGS, "form", "Fund"))


@cache
def school_names(world_seed: int) -> tuple[str, ...]:
    """All school names of a world in its own order; no name occurs twice."""
    rng = Random(f"school names {world_seed}")
    places = [head + tail for head in _SCHOOL_HEADS for tail in _SCHOOL_TAILS]
    places = list(dict.fromkeys(places))
    rng.shuffle(places)
    return tuple(f"{place} {rng.choice(_SCHOOL_TYPES)}" for place in places)
