"""What an agent has to beat on some collections, and what could be won at all.

    python benchmarks/bench_control.py --data ir --data multihop --collection scifact \
        --collection hotpotqa_distractor_pool --actions heads

Plays every fixed sequence on the training questions of every collection, chooses the best pooled
one and the best of each, and prints a table of both with the single pass and the oracle with its
control. `--split test` plays the chosen ones on the test questions; look at them once. The best are
chosen on training questions in either case.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from searchrl_control.collections.judged import SPLITS, TEST, TRAIN
from searchrl_control.comparison.oracle import measure_margin
from searchrl_control.comparison.paired import compare_each, compare_pooled
from searchrl_control.comparison.sequences import (
    SINGLE_PASS,
    Values,
    choose_best,
    list_sequences,
    name_of,
    play_sequences,
)
from searchrl_control.environment.actions import SETS, Action, find_set
from searchrl_control.environment.worlds import Place, World

_LONG = 40
"""Passages of the lists that are re-drawn."""

_ORACLE = 6
"""Sequences that the oracle chooses among: the best ones of the pool, no two of the same length and
last action, so that they are of different kinds."""


def find_place(name: str, given: argparse.Namespace) -> Place:
    """The place of a collection: in the first folder that has it."""
    folder = next((one for one in given.data if (Path(one) / name).is_dir()), None)
    return Place(name, data=folder, actions=given.actions, cache=given.cache)


def choose_kinds(pooled: Mapping[str, float]) -> list[str]:
    """The best sequences that differ in length or in their last action."""
    found: dict[tuple[int, str], str] = {}
    for name in sorted(pooled, key=lambda one: -pooled[one]):
        steps = name.split(", ")
        found.setdefault((len(steps), steps[-1]), name)
    return list(found.values())[:_ORACLE]


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", action="append", required=True)
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--cache")
    parser.add_argument("--actions", default="heads", choices=list(SETS))
    parser.add_argument("--only", help="these actions alone: Fuse,Follow,Hop")
    parser.add_argument("--max-steps", type=int, default=5)
    parser.add_argument("--split", default=TRAIN, choices=SPLITS)
    given = parser.parse_args()
    actions = find_set(given.actions)
    only = [Action(name) for name in given.only.split(",")] if given.only else None
    sequences = list_sequences(actions, given.max_steps, only)
    by_name = {name_of(actions, sequence): sequence for sequence in sequences}
    began = time.process_time()
    worlds: dict[str, World] = {}
    training: dict[str, Values] = {}
    for name in given.collection:
        worlds[name] = World(find_place(name, given))
        training[name] = play_sequences(worlds[name], TRAIN, sequences)
    best = choose_best(list(training.values()))
    own = {name: choose_best([values]) for name, values in training.items()}
    wanted = {SINGLE_PASS, best, *own.values()}
    shown: dict[str, Values] = training
    if given.split == TEST:
        asked = [by_name[name] for name in wanted]
        shown = {name: play_sequences(world, TEST, asked) for name, world in worlds.items()}

    def pick(chosen: Mapping[str, str]) -> dict[str, Mapping[str, float]]:
        return {name: shown[name][chosen[name]] for name in worlds}

    single = pick(dict.fromkeys(worlds, SINGLE_PASS))
    rows: dict[str, Any] = {}
    for label, chosen in (("best pooled", dict.fromkeys(worlds, best)), ("best of each", own)):
        values = pick(chosen)
        rows[label] = {
            "sequences": chosen,
            "against the single pass": compare_pooled(values, single),
            "each": compare_each(values, single),
        }
    told: dict[str, Any] = {
        "split": given.split,
        "actions": given.actions,
        "sequences": len(sequences),
        "questions": {name: len(world.questions(given.split)) for name, world in worlds.items()},
        "single pass": {name: sum(of.values()) / len(of) for name, of in single.items()},
        "rows": rows,
    }
    if given.split == TRAIN:
        told["oracle"] = {
            name: measure_oracle(worlds[name], training[name], by_name) for name in worlds
        }
    told["cpu_s"] = round(time.process_time() - began, 1)
    print(json.dumps(told, indent=1))


def measure_oracle(
    world: World, values: Values, by_name: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The oracle over sequences of different kinds, on the questions of one collection."""
    means = {name: sum(of.values()) / len(of) for name, of in values.items()}
    kinds = choose_kinds(means)
    long = World(Place(**{**_as_dict(world.place), "topk": _LONG}))
    questions = world.questions(TRAIN)
    lists = {
        one.id: long.positions.list_after(long.asker(one), by_name[kinds[0]]) for one in questions
    }
    margin = measure_margin(
        {name: values[name] for name in kinds}, kinds[0], lists, {q.id: q.qrels for q in questions}
    )
    return {"kinds": kinds, **margin._asdict(), "learnable": margin.learnable}


def _as_dict(place: Place) -> dict[str, Any]:
    return {name: getattr(place, name) for name in place.__slots__}


if __name__ == "__main__":
    main()
