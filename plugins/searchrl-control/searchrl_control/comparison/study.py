"""The comparison as a whole: networks against everything that decides nothing, on test questions.

Owns its order, its statistics and its table. All that is chosen (the best sequences, the checkpoint
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
from searchrl_control.comparison.playing import Board, Played, Watched, make_heuristic
from searchrl_control.comparison.runs import TrainedRun, load_network
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

COLLAPSED = 0.98
"""A network that ends in so many of its decisions has collapsed."""

ByName = Mapping[str, tuple[Played, ...]]
"""The name of a policy -> its episodes on the questions of all collections."""


def compare_runs(envs: Envs, runs: Sequence[TrainedRun], say: Say) -> dict[str, Any]:
    """The whole comparison as JSON; `say` is told what takes a while.

    Raises:
        ConfigError: a collection has no test questions, or a network was trained for another space.
        RunFolderError: no checkpoint of a run is whole.
    """
    if empty := [name for name, env in envs.items() if not env.world.questions(TEST)]:
        raise ConfigError(f"the collection '{empty[0]}' has no test questions")
    boards = [Board(env, TRAIN) for env in envs.values()]
    swept = []
    for run in runs:
        say(f"{run.path}: {len(run.checkpoints)} checkpoints on the training questions …")
        swept.append(sweep(run, boards, say))
    # Of equals, the earliest.
    chosen = [max(rows, key=lambda row: row["train"]["ndcg"]["value"])["step"] for rows in swept]
    training, on_test = play_all(envs, TRAIN, say), play_all(envs, TEST, say)
    told = describe(training)
    pooled = means_of(list(on_test.values()))
    highest = max(pooled, key=lambda name: pooled[name])
    best = {name: one["sequence"] for name, one in told["best"].items()}
    boards = [Board(env, TEST) for env in envs.values()]
    others = {
        "single pass": _as_played(envs, on_test, dict.fromkeys(envs, SINGLE_PASS)),
        "heuristic": _join([board.play(make_heuristic(board.space)) for board in boards]),
        "best fixed sequence": _as_played(envs, on_test, dict.fromkeys(envs, best["pooled"])),
        "best of each collection": _as_played(envs, on_test, best),
    }
    agents = {}
    for run, step in zip(runs, chosen, strict=True):
        network = load_network(run, step, boards[0].space)
        name = "agent" if len(runs) == 1 else f"agent {run.path.resolve().name}"
        agents[f"{name} (step {step})"] = _join([board.play(network) for board in boards])
    if len(runs) > 1:
        # The mean of the runs on every question: `worth_of` takes repeated questions so.
        agents[f"agent, mean of {len(runs)} runs"] = tuple(chain(*agents.values()))
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
        "tables": _tables(envs, {**others, **agents}),
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


def sweep(run: TrainedRun, boards: Sequence[Board], say: Say) -> list[dict[str, Any]]:
    """Every checkpoint of a run on the questions of boards, in the order of its steps, as JSON.

    `choices` are shares of the decisions between several legal actions. Damaged ones are left out,
    and `say` is told.

    Raises:
        RunFolderError: none of them is whole.
    """
    found = []
    for step in run.checkpoints:
        try:
            network = load_network(run, step, boards[0].space)
        except DamagedError as error:
            say(f"left out: {error}")
            continue
        watched = [board.play(network) for board in boards]
        choices: Counter[str] = sum((Counter(one.choices) for one in watched), Counter())
        shares = {name: count / choices.total() for name, count in choices.most_common()}
        ends, least = shares.get(Action.TERMINATE, 0.0), min(one.least for one in watched)
        found.append(
            {
                "step": step,
                "checkpoint": f"step {step}",
                "train": row_of(_join(watched)),
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
    strata = {(name, one): name for name, one in ours}

    def minus(names: set[str]) -> Paired:
        one, other = (
            {f"{key[0]}/{key[1]}": value for key, value in of.items() if key[0] in names}
            for of in (ours, theirs)
        )
        parts = {f"{key[0]}/{key[1]}": name for key, name in strata.items() if name in names}
        return compare({"ndcg": one}, {"ndcg": other}, parts if len(names) > 1 else None)["ndcg"]

    names = list(dict.fromkeys(strata.values()))
    return {"pooled": minus(set(names)), "each": {name: minus({name}) for name in names}}


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


def _tables(envs: Envs, everybody: ByName) -> dict[str, Any]:
    """The tables, pooled and of each collection: a row for each policy."""
    tables = {"pooled": {name: row_of(played) for name, played in everybody.items()}}
    for label in envs if len(envs) > 1 else ():
        tables[label] = {
            name: row_of([one for one in played if one.collection == label])
            for name, played in everybody.items()
        }
    return tables


def _join(watched: Sequence[Watched]) -> tuple[Played, ...]:
    return tuple(chain.from_iterable(one.played for one in watched))


_HEADS = ("policy", "nDCG@10", "95 %", "steps", *(str(level) for level in Difficulty), "actions")


def worth_of(played: Iterable[Played]) -> dict[tuple[str, str], float]:
    """nDCG@k by collection and question; the mean of those that were played several times."""
    found: dict[tuple[str, str], list[float]] = {}
    for one in played:
        found.setdefault((one.collection, one.question), []).append(one.ndcg)
    return {key: fmean(values) for key, values in found.items()}


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """What the table says of one policy; `levels` have a mean and a count each.

    If a question was played several times (by several runs), the mean of them counts, once.
    """
    values = worth_of(played)
    level_of = {(one.collection, one.question): one.level for one in played}
    done = Counter(action for one in played for action in one.actions)
    levels = {}
    for level in Difficulty:
        if of_level := [value for key, value in values.items() if level_of[key] == level]:
            levels[str(level)] = {"ndcg": fmean(of_level), "n": len(of_level)}
    named = {"/".join(key): value for key, value in values.items()}
    return {
        "ndcg": estimate({"ndcg": named})["ndcg"],
        "steps": done.total() / len(played),
        "actions": {name: count / done.total() for name, count in done.most_common()},
        "illegal": sum(one.num_illegal for one in played),
        "levels": levels,
    }


def render(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The table in Markdown, a line for each policy."""
    lines: list[Sequence[str]] = [_HEADS, ["---"] * len(_HEADS)]
    for name, row in rows.items():
        ndcg, levels = row["ndcg"], row["levels"]
        of_levels = [
            f"{levels[level]['ndcg']:.4f} ({levels[level]['n']})" if level in levels else ""
            for level in map(str, Difficulty)
        ]
        actions = ", ".join(f"{action} {share:.0%}" for action, share in row["actions"].items())
        interval = f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" if "low" in ndcg else ""
        lines.append(
            (name, f"{ndcg['value']:.4f}", interval, f"{row['steps']:.2f}", *of_levels, actions)
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
