"""Made-up rows of three shapes, for trying things without any download. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

NUM_ROWS = 3600
NAMES = "Ada Ben Cora Dov Elif Finn Gerda Hugo Ines Jon Kaya Leo Mina Nils Olga Paul".split()
TRADES = "baker barber carpenter doctor farmer gardener judge painter pilot teacher".split()
TOWNS = "Alcombe Belford Corwick Dalham Elmere Fenton Garholm Harwell Ilbury Kelsey".split()
NOUNS = "age area cost count depth height length level mass price rate score size speed".split()
SIGNS = {"adds": ("Add", "+"), "subtracts": ("Subtract", "-"), "multiplies by": ("Multiply", "*")}
CALLS = {
    "book": ({"seats": "integer", "town": "string"}, "Please book {n} seats to {town}."),
    "weather": ({"town": "string", "days": "integer"}, "How is {town} in {n} days, sun or rain?"),
    "ring": ({"name": "string", "hour": "integer"}, "Give {name} a ring at {n}."),
}
TOOLS = [
    {
        "name": tool,
        "description": f"Use it to {tool}.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in types.items()},
            "required": [*types],
        },
    }
    for tool, (types, _) in CALLS.items()
]


def make_rows(world_seed: int) -> Iterator[dict[str, Any]]:
    """Rows of chat, code and function calling in turn."""
    for number in range(NUM_ROWS):
        rng = Random(f"examples/{world_seed}/{number}")
        drawn = {"n": rng.randint(2, 99), "town": rng.choice(TOWNS), "name": rng.choice(NAMES)}
        yield (_make_chat, _make_code, _make_call)[number % 3](rng, drawn)


def _make_chat(rng: Random, drawn: dict[str, Any]) -> dict[str, Any]:
    introduction = "I am {name}, a {trade} from {town}, one of {n}."
    turns = [introduction, "Hello {name}.", "What do you know about me?"]
    turns.append("{name} lives in {town} and works there as a {trade}, like {n} in all.")
    if rng.random() < 0.5:
        turns[:3] = [f"{introduction} Who am I?"]
    drawn["trade"] = rng.choice(TRADES)
    pairs = zip(("human", "gpt") * 2, turns, strict=False)
    return {"conversations": [{"from": who, "value": one.format(**drawn)} for who, one in pairs]}


def _make_code(rng: Random, drawn: dict[str, Any]) -> dict[str, Any]:
    noun, name, n = rng.choice(NOUNS), rng.choice(NOUNS), drawn["n"]
    does, (do, sign) = rng.choice([*SIGNS.items()])
    code = f'def {name}({noun}: int) -> int:\n    """{do} {n}."""\n    return {noun} {sign} {n}\n'
    task = f"Write a Python function `{name}` that takes a {noun} and {does} {n}."
    return {"instruction": task, "output": f"```python\n{code}```"}


def _make_call(rng: Random, drawn: dict[str, Any]) -> dict[str, Any]:
    tools = rng.sample(TOOLS, 2)
    tool = str(rng.choice(tools)["name"])
    types, request = CALLS[tool]
    given = {key: drawn["n" if kind == "integer" else key] for key, kind in types.items()}
    call = f'{{"name": "{tool}", "arguments": \'{json.dumps(given)}\'}}'
    number = rng.randint(100, 999)
    turns = {
        "USER": request.format(**drawn),
        "ASSISTANT": f"<functioncall> {call} <|endoftext|>",
        "FUNCTION RESPONSE": json.dumps({"number": number}),
    }
    chat = "".join(f"{who}: {text}\n\n\n" for who, text in turns.items())
    chat += f"ASSISTANT: That is number {number}. <|endoftext|>"
    return {"system": "SYSTEM: Functions -\n" + "\n".join(map(json.dumps, tools)), "chat": chat}
