"""The words of the made-up world: names, nouns with their values, and sentences.

Owns data only. A name is two words, and what is held out are pairs of words: a small model then
knows each word of a name that it never saw, and every name has the same number of tokens. Wordings
come in two parts: those of every split, and those that only tests show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

TOWN_FIRST = tuple(
    "Abbey Black Bridge Broad Castle Deep East Fair Great Green Grey High Little Long Lower Market "
    "North Old Red South Stony Upper West White".split()
)
TOWN_LAST = tuple(
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
    "Abbott Becker Blythe Brandt Calder Carver Crane Denby Drury Eckert Fisk Forster Garnett "
    "Graves Haldane Harker Hobbs Ingram Jarvis Kemp Kipling Lambert Lorenz Munro Nash Oakley Paget "
    "Quill Radley Sorrel Thorne Yates".split()
)

ROLES = tuple("mayor baker doctor teacher".split())
"""What a person is in a town: the answer is a name, and a step to that person."""

TOWN_VALUES: Mapping[str, tuple[str, ...]] = {
    "crop": tuple(
        "barley beans beets cabbage carrots clover cotton flax garlic hemp hops leeks lentils "
        "maize millet oats onions peas rye wheat".split()
    ),
    "tree": tuple(
        "acacia alder ash aspen beech birch cedar cherry chestnut cypress elm fir hazel juniper "
        "larch lime maple oak pine willow".split()
    ),
    "bird": tuple(
        "crane crow dove eagle falcon finch gull heron jay kestrel lark magpie owl plover raven "
        "robin stork swallow thrush wren".split()
    ),
    "metal": tuple(
        "aluminium brass bronze chrome cobalt copper gold iron lead lithium nickel platinum silver "
        "steel tin titanium tungsten uranium vanadium zinc".split()
    ),
    "sport": tuple(
        "archery badminton bowling boxing cricket curling cycling diving fencing football golf "
        "hockey judo polo rowing rugby sailing skating tennis wrestling".split()
    ),
}
PERSON_VALUES: Mapping[str, tuple[str, ...]] = {
    "drink": tuple(
        "ale beer cider cocoa coffee cola gin juice kefir lemonade mead milk punch rum sherry soda "
        "tea tonic water wine".split()
    ),
    "tool": tuple(
        "anvil axe brush chisel clamp drill file hammer hoe knife ladder lever mallet needle "
        "pliers rake saw shovel spade wrench".split()
    ),
    "pet": tuple(
        "beetle canary cat dog donkey ferret frog goat goose hamster hen lizard mouse parrot pony "
        "rabbit rat snail spider turtle".split()
    ),
    "dish": tuple(
        "bread broth cake cheese curry dumplings fish noodles omelette pancakes pasta pie pizza "
        "porridge pudding rice salad soup stew toast".split()
    ),
    "instrument": tuple(
        "accordion bagpipe banjo bassoon bugle cello clarinet cymbal drum fiddle flute guitar harp "
        "horn lute oboe organ piano trumpet violin".split()
    ),
}

CUES: Mapping[str, tuple[str, ...]] = {
    "general": ("listed", "official", "registered"),
    "news": ("current", "latest", "newest"),
    "academic": ("examined", "researched", "studied"),
}
"""What a question calls the kind of fact that each source has."""


class Wordings(NamedTuple):
    """Sentences with slots; `held_out` are those that no training task shows."""

    seen: tuple[str, ...]
    held_out: tuple[str, ...]


# Slots: {n} the noun, {e} whose it is, {v} the value. No passage has a word of `CUES`. Names are
# the only words with a capital inside a sentence.
PASSAGES: Mapping[str, Wordings] = {
    "general": Wordings(
        (
            "The {n} of {e} is {v}.",
            "In {e} the {n} is {v}.",
            "The book gives {v} as the {n} of {e}.",
            "The book says that the {n} of {e} is {v}.",
            "By the book {v} is the {n} of {e}.",
        ),
        ("In the book the {n} of {e} is {v}.", "The book says that {v} is the {n} of {e}."),
    ),
    "news": Wordings(
        (
            "The paper says that the {n} of {e} is {v}.",
            "The {n} of {e} is {v} from today.",
            "In {e} the {n} is {v} from today.",
            "The paper gives {v} as the {n} of {e}.",
            "From today {v} is the {n} of {e}.",
        ),
        ("In the paper the {n} of {e} is {v}.", "The paper says that {v} is the {n} of {e}."),
    ),
    "academic": Wordings(
        (
            "The team found that the {n} of {e} is {v}.",
            "In the data the {n} of {e} is {v}.",
            "The data give {v} as the {n} of {e}.",
            "The team found {v} as the {n} of {e}.",
            "It seems that {v} is the {n} of {e}.",
        ),
        ("The team found that {v} is the {n} of {e}.", "The data say that the {n} of {e} is {v}."),
    ),
}

# Slot: {p} what is asked for, such as "the latest crop of Dalham".
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
