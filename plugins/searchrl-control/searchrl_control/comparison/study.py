"""The comparison as a whole: networks against everything that decides nothing, on test questions.

Owns its order, and its statistics. All that is chosen (the best sequences, the checkpoint
of a run) is chosen on training questions; the test questions are played with what was chosen. In
the pool each collection is a stratum: its share is no matter of chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any

from searchrl import ConfigError, DamagedError, RunFolderError, compare, estimate
from searchrl.contracts import Paired
from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.comparison.playing import Played, make_heuristic, play_greedily
from searchrl_control.comparison.runs import load_network
from searchrl_control.comparison.sequences import (
    SINGLE_PASS,
    Envs,
    Say,
    Values,
    describe,
    means_of,
    measure_oracle,
    play_all,
)
from searchrl_control.environment.actions import Action
from searchrl_control.environment.measures import Difficulty
from searchrl_control.policies.space import shared_space
from searchrl_control.training.folder import Run

COLLAPSED = 0.98
"""A network that ends in so many of its decisions has collapsed."""


def compare_runs(envs: Envs, runs: Sequence[Run], say: Say) -> dict[str, Any]:
    """The whole comparison as JSON; `say` is told what takes a while.

    Raises:
        ConfigError: a collection has no test questions, or a network was trained for another space.
        RunFolderError: no checkpoint of a run is whole.
    """
    if empty := [name for name, env in envs.items() if not env.world.questions(TEST)]:
        raise ConfigError(f"the collection '{empty[0]}' has no test questions")
    space = shared_space(envs.values())
    swept = []
    for run in runs:
        say(f"{run.path}: {len(run.checkpoints)} checkpoints on the training questions …")
        swept.append(sweep(run, envs, say))
    # Of equals, the earliest.
    chosen = [max(rows, key=lambda row: row["train"]["ndcg"]["value"])["step"] for rows in swept]
    training, on_test = play_all(envs, TRAIN, say), play_all(envs, TEST, say)
    told = describe(training)
    pooled = means_of(list(on_test.values()))
    highest = max(pooled, key=lambda name: pooled[name])
    best = {name: one["sequence"] for name, one in told["best"].items()}
    others = {
        "single pass": _as_played(envs, on_test, dict.fromkeys(envs, SINGLE_PASS)),
        "heuristic": play_greedily(make_heuristic(space), envs, TEST)[0],
        "best fixed sequence": _as_played(envs, on_test, dict.fromkeys(envs, best["pooled"])),
        "best of each collection": _as_played(envs, on_test, best),
    }
    agents = {}
    for run, step in zip(runs, chosen, strict=True):
        name = "agent" if len(runs) == 1 else f"agent {run.path.resolve().name}"
        network = load_network(run, step, space)
        agents[f"{name} (step {step})"], _ = play_greedily(network, envs, TEST)
    if len(runs) > 1:
        # The mean of the runs on every question: `worth_of` takes repeated questions so.
        agents[f"agent, mean of {len(runs)} runs"] = tuple(chain(*agents.values()))
    everybody = {**others, **agents}
    tables = {"pooled": {name: row_of(played) for name, played in everybody.items()}}
    for label in envs if len(envs) > 1 else ():
        tables[label] = {
            name: row_of([one for one in played if one.collection == label])
            for name, played in everybody.items()
        }
    return {
        **{key: told[key] for key in ("sequences", "best")},
        "questions": {
            name: {split: len(env.world.questions(split)) for split in (TRAIN, TEST)}
            for name, env in envs.items()
        },
        "notes": {name: list(env.world.judged.notes) for name, env in envs.items()},
        "drawn_split": {name: env.world.judged.is_drawn for name, env in envs.items()},
        "on_test": {
            "ndcg": pooled,
            "highest": {"sequence": highest, "ndcg": pooled[highest]},
        },
        "oracle": measure_oracle(envs, TEST, training, on_test),
        "tables": tables,
        "against": {
            agent: {name: compare_played(played, of) for name, of in others.items()}
            for agent, played in agents.items()
        },
        "agents": list(agents),
        "runs": [
            {
                "path": str(run.path),
                "seed": run.settings.seed,
                "network": run.settings.network.model_dump(),
                "checkpoint": f"step {step}",
                "sweep": rows,
            }
            for run, step, rows in zip(runs, chosen, swept, strict=True)
        ],
    }


def sweep(run: Run, envs: Envs, say: Say) -> list[dict[str, Any]]:
    """Every checkpoint of a run on the training questions, in the order of its steps, as JSON.

    `choices` are shares of the decisions between several legal actions. Damaged ones are left out,
    and `say` is told.

    Raises:
        RunFolderError: none of them is whole.
    """
    space, found = shared_space(envs.values()), []
    for step in run.checkpoints:
        try:
            network = load_network(run, step, space)
        except DamagedError as error:
            say(f"left out: {error}")
            continue
        played, (choices, least) = play_greedily(network, envs, TRAIN)
        shares = {name: count / choices.total() for name, count in choices.most_common()}
        ends = shares.get(Action.TERMINATE, 0.0)
        found.append(
            {
                "step": step,
                "checkpoint": f"step {step}",
                "train": row_of(played),
                "choices": shares,
                "terminate": ends,
                "least_probability": least,
                "has_collapsed": least <= 0 or ends >= COLLAPSED,
            }
        )
    if not found:
        raise RunFolderError(f"the run '{run.path}' has no checkpoint that is whole")
    return found


def compare_played(first: Sequence[Played], second: Sequence[Played]) -> dict[str, Any]:
    """The first policy minus the second, paired by question: pooled, and of each collection.

    Raises `ValueError`: the two were not measured on the same questions.
    """
    ours, theirs = worth_of(first), worth_of(second)
    if ours.keys() != theirs.keys():
        raise ValueError("two policies can be compared on the same questions only")
    strata = {one.key: one.collection for one in first}
    names = list(dict.fromkeys(strata.values()))

    def minus(*names: str) -> Paired:
        one, other = (
            {"ndcg": {key: value for key, value in of.items() if strata[key] in names}}
            for of in (ours, theirs)
        )
        return compare(one, other, strata if len(names) > 1 else None)["ndcg"]

    return {"pooled": minus(*names), "each": {name: minus(name) for name in names}}


def _as_played(
    envs: Envs, values: Mapping[str, Values], chosen: Mapping[str, str]
) -> tuple[Played, ...]:
    """The episodes of a sequence on every collection, from what is known of it."""
    found = []
    for name, env in envs.items():
        actions = tuple(chosen[name].split(", "))
        actions += (Action.TERMINATE,) * (len(actions) < env.max_steps)
        for question in env.world.questions(TEST):
            level, worth = str(env.world.level(question)), values[name][chosen[name]][question.id]
            found.append(Played(question.id, name, level, worth, actions))
    return tuple(found)


def worth_of(played: Iterable[Played]) -> dict[str, float]:
    """nDCG@k by question; the mean of those that were played several times."""
    found: dict[str, list[float]] = {}
    for one in played:
        found.setdefault(one.key, []).append(one.ndcg)
    return {key: fmean(values) for key, values in found.items()}


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """What the table says of one policy; `levels` have a mean and a count each.

    If a question was played several times (by several runs), the mean of them counts, once.
    """
    values = worth_of(played)
    level_of = {one.key: one.level for one in played}
    done = Counter(action for one in played for action in one.actions)
    levels = {}
    for level in Difficulty:
        if of_level := [value for key, value in values.items() if level_of[key] == level]:
            levels[str(level)] = {"ndcg": fmean(of_level), "n": len(of_level)}
    return {
        "ndcg": estimate({"ndcg": values})["ndcg"],
        "steps": done.total() / len(played),
        "actions": {name: count / done.total() for name, count in done.most_common()},
        "illegal": sum(one.num_illegal for one in played),
        "levels": levels,
    }
