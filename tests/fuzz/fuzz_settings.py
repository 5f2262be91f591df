"""Fuzzed settings: config files, `--set` words, reward expressions and schedules.

Good ones are taken (presets, the examples, the whole default tree) and one or a few places are
made hostile, so that what is wrong lies deep inside and most of it is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml
from fuzz_judge import Case
from fuzz_values import (
    NUMBERS,
    WORDS,
    damage_bytes,
    damage_text,
    draw_text,
    draw_value,
    misspell,
    nest,
)

from searchrl.config import RunConfig
from searchrl.config.keys import config_keys

REPO = Path(__file__).resolve().parents[2]
PLAY = ("play", "--index", "0")
DRY = ("train", "--dry-run", "--model", "tiny")
_ODD_YAML = (
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
    "env: &e {name: corpus, again: *e}\n",
    "tasks: &t [*t]\n",
    "seed: " + "9" * 5000,
    "env: {topk: " + "9" * 5000 + "}",
    "<<: {seed: 1}\n",
    "<<: [1, 2]\n",
    "? [a, b]\n: 1\n",
    "? {a: b}\n: 1\n",
    "1: 2\n",
    "tasks: {0: {weight: 2}, x: 1}\n",
    "tasks: {'²': {weight: 2}}\n",
    "tasks: {99999999999999999999: {weight: 2}}\n",
    "env: {1: 2}\n",
    "env: {name: [x]}\n",
    "model: [tiny]\n",
    "--- 1\n--- 2\n",
    "seed: 2024-05-06\n",
    "seed: 0o17\n",
    "%YAML 9.9\n---\nseed: 1\n",
    "%TAG ! tag:x,2000:\n---\nseed: !x 1\n",
    "\tseed: 1\n",
    "seed:\n" + " 1" * 9000,
    "x" * 10_000_000,
    "[" * 200_000,
    "a: " + "[" * 900 + "]" * 900,
    "- " * 5000,
    "? " * 5000,
    "k: v\n" * 3000,
    "\n".join(f"key_{n}: {n}" for n in range(3000)),
    "optim:\n" + "\n".join(f"  key_{n}: {n}" for n in range(300)),
)


def config_files(random: Random) -> Iterator[Case]:
    """A YAML file: a good one with damage, or one that is odd as a whole."""
    while True:
        kind = random.randrange(10)
        if kind == 0:
            data = random.choice(_ODD_YAML).encode("utf-8", "surrogatepass")
        elif kind == 1:
            data = damage_bytes(random, random.choice(_good_files()).encode())
        elif kind == 2:
            text = damage_text(random, random.choice(_good_files()), WORDS)
            data = text.encode("utf-8", "surrogatepass")
        else:
            tree = json.loads(json.dumps(random.choice(_good_trees())))
            for _ in range(random.choice((1, 1, 1, 2, 6))):
                _damage_tree(random, tree)
            data = _dump(tree).encode("utf-8", "surrogatepass")
        command = random.choice((PLAY, PLAY, PLAY, PLAY, DRY, ("plugins",)))
        yield Case((*command, "--config", "run.yaml"), {"run.yaml": data})


def set_words(random: Random) -> Iterator[Case]:
    """`--set KEY=VALUE`, with a key or a value that is wrong, or both."""
    keys = [key.path for key in config_keys() if not key.path.startswith("plugins")]
    keys += ["env.questions", "env.topk", "retriever.k1", "protocol.instruction", "tasks.0"]
    while True:
        words: list[str] = []
        for _ in range(random.choice((1, 1, 2))):
            key = random.choice(keys)
            value = _yaml_word(random)
            chance = random.random()
            if chance < 0.15:
                key = misspell(random, key)
            elif chance < 0.2:
                key = ".".join((key, *([draw_text(random)] * random.randrange(4))))
            elif chance < 0.25:
                key = draw_text(random)
            word = f"{key}={value}" if random.random() < 0.95 else key
            words += ["--set", word]
        command = random.choice((PLAY, PLAY, PLAY, PLAY, PLAY, DRY))
        yield Case((*command, *words))


def _yaml_word(random: Random) -> str:
    chance = random.random()
    if chance < 0.4:
        return draw_text(random)
    if chance < 0.7:
        return str(random.choice(NUMBERS))
    return _dump(nest(random) if chance > 0.95 else draw_value(random)).strip()


def _dump(value: Any) -> str:
    """YAML; JSON, which is YAML too, where PyYAML cannot write it."""
    try:
        return yaml.safe_dump(value, allow_unicode=True, default_flow_style=None, sort_keys=False)
    except (yaml.YAMLError, RecursionError):
        return json.dumps(value, ensure_ascii=False)


@cache
def _good_files() -> tuple[str, ...]:
    folders = (REPO / "examples", REPO / "searchrl" / "assets" / "presets")
    found = [path.read_text("utf-8") for one in folders for path in sorted(one.glob("*.yaml"))]
    return (*found, RunConfig().to_yaml())


@cache
def _good_trees() -> tuple[Any, ...]:
    short = {"env": "corpus", "reward": "format+em", "optim": {"lr": 1e-4}, "max_steps": 3}
    return (*map(yaml.safe_load, _good_files()), short, short, {"tasks": [{"env": "corpus"}]})


def _damage_tree(random: Random, tree: Any) -> None:
    """Change one place of a tree in place."""
    if not (places := [*_places(tree)]):
        return
    holder, key = random.choice(places)
    kind = random.randrange(8)
    if kind == 0 and isinstance(holder, dict):
        holder[misspell(random, str(key))] = holder.pop(key)
    elif kind == 1 and isinstance(holder, dict):
        holder[draw_text(random)] = draw_value(random)
    elif kind == 2:
        holder[key] = nest(random)
    elif kind == 3:
        holder[key] = [holder[key]]
    elif kind == 4 and isinstance(holder, dict):
        del holder[key]
    elif kind == 5:
        holder[key] = random.choice(NUMBERS)
    elif kind == 6 and isinstance(holder[key], str):
        holder[key] = misspell(random, holder[key])
    else:
        holder[key] = draw_value(random)


def _places(tree: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    if depth > 6:
        return
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value, depth + 1)
