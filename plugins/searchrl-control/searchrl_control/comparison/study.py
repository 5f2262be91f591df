"""The comparison as a whole: networks against everything that decides nothing, on test questions.

Owns its order and its statistics. All that is chosen (the best sequences, the checkpoint of a run)
is chosen on training questions; the test questions are played with what was chosen. In the pool
each collection is a stratum: its share is no matter of chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from searchrl import ConfigError, compare, estimate, over_seeds
from searchrl.contracts import Paired
from searchrl_control.collections.judged import DEMO, TEST, TRAIN
from searchrl_control.comparison.sequences import (
    SINGLE_PASS,
    Envs,
    compared_envs,
    describe,
    measure_oracle,
    numbers_of,
    parts_of,
    play_all,
    play_sequences,
)
from searchrl_control.environment.env import Turn
from searchrl_control.environment.measures import Difficulty
from searchrl_control.environment.settings import Action
from searchrl_control.training.folder import Run, Say, change_envs, load_network, read_run
from searchrl_control.training.loop import Episodes, Policy, choose_greedily, play, watch
from searchrl_control.training.networks import shared_space


class Played(NamedTuple):
    """One episode: the worth of its list, and its actions; `question` is unique everywhere."""

    question: str
    collection: str
    level: str
    ndcg: float
    actions: tuple[str, ...]


def compare_runs(
    envs: Envs, runs: Sequence[Run], say: Say, others: Envs | None = None
) -> dict[str, Any]:
    """The whole comparison as JSON; `say` hears of long work.

    The collections of `envs` choose checkpoints and sequences; the test questions are theirs, or
    those of `others`, which the runs need not have seen.
    """
    tested, told_runs = others or envs, []
    space = shared_space([*envs.values(), *tested.values()])
    agents: dict[str, list[list[Played]]] = {}
    for run in runs:
        say(f"{run.path}: {len(run.checkpoints)} checkpoints on the training questions …")
        swept = sweep(run, envs)
        # Of equals, the earliest.
        step = max(swept, key=lambda row: row["train"]["ndcg"]["value"])["step"]
        name = "agent" if len(runs) == 1 else f"agent {run.path.resolve().name}"
        played, _ = play_greedily(load_network(run, step, space), tested, TEST)
        agents[f"{name} (step {step})"] = [played]
        ways = {one.actions for one in played}
        faults = ["step 0 was chosen: nothing that was learned is better"] * (step == 0)
        if len(ways) == 1:
            faults.append(f"the agent plays one fixed sequence: {', '.join(ways.pop())}")
        told_runs.append(
            {
                "path": str(run.path),
                "seed": run.settings.seed,
                "network": run.settings.network.model_dump(),
                "checkpoint": step,
                "faults": faults,
                "sweep": swept,
            }
        )
    if len(runs) > 1:
        agents[f"agent, mean of {len(runs)} runs"] = [*chain(*agents.values())]
    training = play_all(envs, say)
    described = describe(training)
    best_of = describe(play_all(others, say)) if others else described
    best = {name: best_of["best"][name]["sequence"] for name in tested}
    fixed = described["best"]["pooled"]["sequence"]
    baselines = {
        "single pass": _play_fixed(tested, dict.fromkeys(tested, SINGLE_PASS)),
        "best fixed sequence": _play_fixed(tested, dict.fromkeys(tested, fixed)),
        "best of each collection": _play_fixed(tested, best),
    }
    rows = {name: [played] for name, played in baselines.items()} | agents
    return {
        "sequences": described["sequences"],
        "best": described["best"],
        "collections": {
            name: {
                **{split: len(questions) for split, questions in env.world.questions.items()},
                "notes": env.world.judged.notes,
            }
            for name, env in tested.items()
        },
        "oracle": measure_oracle(tested, TEST, training),
        "tables": {
            part: {
                name: row_of([one for one in chain(*seeds) if one.collection in names])
                for name, seeds in rows.items()
            }
            for part, names in parts_of(tested).items()
        },
        "against": {
            agent: {name: compare_played(played, of) for name, of in baselines.items()}
            for agent, played in agents.items()
        },
        "runs": told_runs,
    }


def read_runs(
    paths: Sequence[Path], changes: Mapping[str, Any]
) -> tuple[list[Run], list[dict[str, Any]]]:
    """Read runs of one training, and the settings of their environments as they are compared."""
    runs = [read_run(path) for path in dict.fromkeys(paths)]
    envs = [
        compared_envs(change_envs(run.settings, changes, f"the run '{run.path}'")) for run in runs
    ]
    for run, places in zip(runs, envs, strict=True):
        if places != envs[0]:
            raise ConfigError(
                f"the runs '{runs[0].path}' and '{run.path}' were trained in environments with "
                "other settings; compare each for itself"
            )
    return runs, envs[0]


def other_places(places: Sequence[dict[str, Any]], names: Iterable[str]) -> list[dict[str, Any]]:
    """The settings of environments for collections by name, as those of some runs are compared.

    A collection of the runs is drawn as in training, so its test questions are the same.
    """
    known = {Path(one.get("collection", DEMO)).name: one for one in places}
    usual = {key: of for key, of in places[0].items() if key not in ("train_share", "split_seed")}
    return [{**known.get(Path(name).name, usual), "collection": name} for name in names]


def sweep(run: Run, envs: Envs) -> list[dict[str, Any]]:
    """Every checkpoint of a run on the training questions, in the order of its steps, as JSON.

    `choices` are shares of the decisions between several legal actions.
    """
    space, rows = shared_space(envs.values()), []
    for step in run.checkpoints:
        network = load_network(run, step, space)
        played, episodes = play_greedily(network, envs, TRAIN)
        choices, _ = watch(network, episodes, space.actions, run.settings.floor)
        shares = {name: count / choices.total() for name, count in choices.most_common()}
        rows.append({"step": step, "train": row_of(played), "choices": shares})
    return rows


def play_greedily(policy: Policy, envs: Envs, split: str) -> tuple[list[Played], Episodes]:
    """Play every question of a split once, with the most probable action at each choice."""
    players = [env for env in envs.values() for _ in env.world.questions[split]]
    turns = [Turn(one) for env in envs.values() for one in env.world.questions[split]]
    episodes = play(policy, players, turns, choose_greedily)
    played = []
    for env, turn in zip(players, episodes.turns, strict=True):
        name, level = env.world.name, str(env.world.level(turn.question))
        key, actions = f"{name}/{turn.question.id}", tuple(map(str, turn.done))
        played.append(Played(key, name, level, turn.worth, actions))
    return played, episodes


def _play_fixed(envs: Envs, chosen: Mapping[str, str]) -> list[Played]:
    """The episodes of the sequence of each collection on the test questions."""
    played = []
    for name, env in envs.items():
        actions = tuple(chosen[name].split(", "))
        values = play_sequences(env.world, TEST, [numbers_of(env.actions, chosen[name])])
        actions += (Action.TERMINATE,) * (len(actions) < env.max_steps)
        for question in env.world.questions[TEST]:
            level, worth = str(env.world.level(question)), values[chosen[name]][question.id]
            played.append(Played(f"{name}/{question.id}", name, level, worth, actions))
    return played


def worth_of(played: Iterable[Played]) -> dict[str, float]:
    """nDCG@k by question; the mean of those that were played several times."""
    values: dict[str, list[float]] = {}
    for one in played:
        values.setdefault(one.question, []).append(one.ndcg)
    return {key: fmean(of) for key, of in values.items()}


def compare_played(
    seeds: Sequence[Sequence[Played]], second: Sequence[Played]
) -> dict[str, Paired]:
    """The mean of some seeds of a policy minus another policy, paired by question.

    Pooled, of each collection, and of each level of difficulty. The interval of one seed is over
    questions. That of several is over questions and seeds: of two independent errors, the squares
    of the half widths add up (MOVER, Zou and Donner 2008). `p` is over questions. Policies that act
    alike on every question differ by 0, without an error: there is no interval.
    """
    done = {one.question: one.actions for one in second}
    strata = {one.question: one.collection for one in second}
    parts = {name: {*names} for name, names in parts_of(dict.fromkeys(strata.values())).items()}
    levels = dict.fromkeys(f"{one.level} questions" for one in second)
    parts |= {level: {level} for level in levels}
    differences = {}
    for part, names in parts.items():
        base, *others = (
            worth_of(one for one in played if {one.collection, f"{one.level} questions"} & names)
            for played in (second, chain(*seeds), *seeds)
        )
        differences[part] = paired = compare({"ndcg": others[0]}, {"ndcg": base}, strata)["ndcg"]
        if all(one.actions == done[one.question] for one in chain(*seeds) if one.question in base):
            differences[part] = {"value": 0.0, "n": paired["n"], "p": 1.0, "test": paired["test"]}
        elif len(seeds) > 1 and "low" in paired:
            seen = over_seeds([fmean(of.values()) for of in others[1:]])
            half = seen["high"] - seen["value"]
            paired["low"] = paired["value"] - math.hypot(paired["value"] - paired["low"], half)
            paired["high"] = paired["value"] + math.hypot(paired["high"] - paired["value"], half)
    return differences


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """The row of one policy; `levels` have a mean and a count each.

    A question that several runs played counts once, with its mean.
    """
    values = worth_of(played)
    level_of = {one.question: one.level for one in played}
    done = Counter(action for one in played for action in one.actions)
    levels = {}
    for level in Difficulty:
        if of_level := [value for key, value in values.items() if level_of[key] == level]:
            levels[str(level)] = {"ndcg": fmean(of_level), "n": len(of_level)}
    return {
        "ndcg": estimate({"ndcg": values})["ndcg"],
        "steps": done.total() / len(played),
        "actions": {name: count / done.total() for name, count in done.most_common()},
        "levels": levels,
    }
