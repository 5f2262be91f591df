"""The words of the made-up world: names, nouns with their values, and sentences.

Owns data only. A name is two words, and of a place its kind; what is held out are pairs of words.
So a small model knows each word of a name that it never saw, and all names of places and of people
have the same number of tokens. Wordings come in two parts: those of every split, and those that
only tests show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PLACE_FIRST = tuple(
    "Abbey Black Bridge Broad Castle Deep East Fair Great Green Grey High Little Long Lower Market "
    "North Old Red South Stony Upper West White".split()
)
PLACE_LAST = tuple(
    "Alcombe Barnley Belford Corwick Dalham Dunstead Elmere Falley Fenton Garholm Gilport Halburn "
    "Harwell Hollin Ilbury Jorvale Kelsey Kirdale Lanmouth Linton Lorbrook Marwick Melgate Morley "
    "Narford Norden Orham Pelhurst Porston Ralby Rosdell Salton Selwick Tarbury Torpool Ulmere "
    "Valham Welby Wilstone Yorleigh".split()
)
PERSON_FIRST = tuple(
    "Ada Anton Berta Carl Clara David Dora Edgar Elsa Emil Felix Flora Gerda Greta Hanna Hugo Ida "
    "Ines Jonas Karin Leo Lotte Martha Nils Olga Oscar Paula Rosa Simon Tilda Viktor Wanda".split()
)
PERSON_LAST = tuple(
    "Abbott Becker Blythe Brandt Calder Carver Colman Denby Drury Eckert Fisk Forster Garnett "
    "Graves Haldane Harker Hobbs Ingram Jarvis Kemp Kipling Lambert Lorenz Munro Nash Oakley Paget "
    "Quill Radley Sorrel Thorne Yates".split()
)
PLACES = tuple("Farm School Club Mill Inn".split())
"""The kinds of place; the last word of a place's name."""
PERSON = "Person"
"""The kind of those whose name has no such word."""

NUMBERS = tuple("age size rank".split())
"""Nouns whose value is a number."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "crop": tuple(
        "barley beans beets cabbage carrots clover cotton flax garlic hemp hops leeks lentils "
        "maize millet oats onions peas rye wheat".split()
    ),
    "bird": tuple(
        "crane crow dove eagle falcon finch gull heron jay kestrel lark magpie owl plover raven "
        "robin stork swallow thrush wren".split()
    ),
    "drink": tuple(
        "ale beer cider cocoa coffee cola gin juice kefir lemonade mead milk punch rum sherry soda "
        "tea tonic water wine".split()
    ),
    "tool": tuple(
        "anvil axe brush chisel clamp drill file hammer hoe knife ladder lever mallet needle "
        "pliers rake saw shovel spade wrench".split()
    ),
    "dish": tuple(
        "bread broth cake cheese curry dumplings fish noodles omelette pancakes pasta pie pizza "
        "porridge pudding rice salad soup stew toast".split()
    ),
    **{number: tuple("123456789") for number in NUMBERS},
}
"""Nouns of every entity, with their values: a word, or a number."""

LINKS: Mapping[str, str] = {"cook": "kitchen", "guard": "gate", "driver": "road"}
"""Nouns of places whose value is a person, and a question's word for the things of that person: the
kitchen drink of a farm is the drink of its cook."""

WORDS = tuple(noun for noun in VALUES if noun not in NUMBERS)

NOUNS = (*VALUES, *LINKS)

PLAIN = tuple("usual main known present".split())
"""A question's word for the things of the entity itself."""

MOST = {"greater": max, "smaller": min}
"""Comparisons by their word."""


class Wordings(NamedTuple):
    """Sentences with slots; `held_out` are those that no training task shows."""

    seen: tuple[str, ...]
    held_out: tuple[str, ...]


# Slots: {n} the noun, {e} whose it is, {v} the value. Names are the only words with a capital
# inside a sentence. All have as many words, because BM25 prefers short passages.
PASSAGES = Wordings(
    (
        "In truth the {n} of {e} is {v}.",
        "In fact the {n} of {e} is {v}.",
        "The {n} of {e} seems to be {v}.",
        "The book gives {v} as {n} of {e}.",
        "The book says {v} is {n} of {e}.",
        "The list has {v} for {n} of {e}.",
        "In short the {n} of {e} is {v}.",
        "In short {v} is the {n} of {e}.",
    ),
    ("In books the {n} of {e} is {v}.", "In fact {v} is the {n} of {e}."),
)

# Slot: {p} what is asked for, such as "the usual crop of Great Dalham Farm".
QUESTIONS = Wordings(
    (
        "Tell me {p}.",
        "Find {p}.",
        "Please give me {p}.",
        "I ask for {p}.",
        "Do you know {p}?",
        "Look up {p}.",
        "Can you say {p}?",
        "I need {p}.",
        "What is {p}?",
        "Name {p}.",
        "Search for {p}.",
        "I would like to have {p}.",
    ),
    ("Please tell me {p}.", "Can you find {p}?", "I need to know {p}.", "Please look up {p}."),
)
