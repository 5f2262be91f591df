"""The comparison as a whole: networks against everything that decides nothing, on test questions.

Owns its order, its statistics, and the published heuristic. All that is chosen (the best sequences,
the checkpoint of a run) is chosen on training questions; the test questions are played with what
was chosen. In the pool each collection is a stratum: its share is no matter of chance. Shapes: B
episodes, S choices, D numbers seen, A actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from searchrl import ConfigError, compare, estimate
from searchrl.contracts import Paired
from searchrl_control.collections.judged import TEST, TRAIN
from searchrl_control.comparison.sequences import (
    SINGLE_PASS,
    Envs,
    Values,
    compared_envs,
    describe,
    means_of,
    measure_oracle,
    parts_of,
    play_all,
)
from searchrl_control.environment.env import Turn
from searchrl_control.environment.features import LIST_FEATURES
from searchrl_control.environment.measures import Difficulty
from searchrl_control.environment.settings import Action
from searchrl_control.training.folder import Run, Say, change_envs, load_network, read_run
from searchrl_control.training.loop import Policy, play, watch
from searchrl_control.training.networks import Decided, Space, masked_logps, shared_space

COLLAPSED = 0.98
"""A network that ends in so many of its decisions has collapsed."""

_CLOSE, _UNCOVERED = 0.2, 0.5
"""The bounds of the heuristic: scores that lie so close together, and so little of the question in
the first three passages."""


class Played(NamedTuple):
    """One episode: what its list is worth, and the actions that were done.

    The name of the question is one that no other collection has.
    """

    question: str
    collection: str
    level: str
    ndcg: float
    actions: tuple[str, ...]


def compare_runs(envs: Envs, runs: Sequence[Run], say: Say) -> dict[str, Any]:
    """The whole comparison as JSON; `say` is told what takes a while.

    Raises `ConfigError`, `DamagedError`: a network was trained for another space, or is not whole.
    """
    space, agents, told_runs = shared_space(envs.values()), {}, []
    for run in runs:
        say(f"{run.path}: {len(run.checkpoints)} checkpoints on the training questions …")
        rows = sweep(run, envs)
        # Of equals, the earliest.
        step = max(rows, key=lambda row: row["train"]["ndcg"]["value"])["step"]
        name = "agent" if len(runs) == 1 else f"agent {run.path.resolve().name}"
        network = load_network(run, step, space)
        agents[f"{name} (step {step})"], _ = play_greedily(network, envs, TEST)
        told_runs.append(
            {
                "path": str(run.path),
                "seed": run.settings.seed,
                "network": run.settings.network.model_dump(),
                "checkpoint": step,
                "sweep": rows,
            }
        )
    if len(runs) > 1:
        # The mean of the runs on every question: `worth_of` takes repeated questions so.
        agents[f"agent, mean of {len(runs)} runs"] = list(chain(*agents.values()))
    training, on_test = play_all(envs, TRAIN, say), play_all(envs, TEST, say)
    told = describe(training)
    best = {name: one["sequence"] for name, one in told["best"].items()}
    others = {
        "single pass": _as_played(envs, on_test, dict.fromkeys(envs, SINGLE_PASS)),
        "heuristic": play_greedily(make_heuristic(space), envs, TEST)[0],
        "best fixed sequence": _as_played(envs, on_test, dict.fromkeys(envs, best["pooled"])),
        "best of each collection": _as_played(envs, on_test, best),
    }
    return {
        "sequences": told["sequences"],
        "best": told["best"],
        "collections": {
            name: {
                **{split: len(asked) for split, asked in env.world.questions.items()},
                "notes": env.world.judged.notes,
            }
            for name, env in envs.items()
        },
        "on_test": means_of(list(on_test.values())),
        "oracle": measure_oracle(envs, TEST, training, on_test),
        "tables": {
            part: {
                name: row_of([one for one in played if one.collection in names])
                for name, played in {**others, **agents}.items()
            }
            for part, names in parts_of(envs).items()
        },
        "against": {
            agent: {name: compare_played(played, of) for name, of in others.items()}
            for agent, played in agents.items()
        },
        "runs": told_runs,
    }


def read_runs(
    paths: Sequence[Path], changes: Mapping[str, Any]
) -> tuple[list[Run], list[dict[str, Any]]]:
    """Read runs of one training, and the settings of their environments as they are compared.

    Raises `RunFolderError`, `DamagedError`: there is no run, or no checkpoint, or it is not whole.
    `ConfigError`: one asks a server that only it names, or they differ in their environments.
    """
    runs = [read_run(path) for path in dict.fromkeys(paths)]
    envs = [
        compared_envs(change_envs(run.settings, changes, f"the run '{run.path}'")) for run in runs
    ]
    for run, own in zip(runs, envs, strict=True):
        if own != envs[0]:
            raise ConfigError(
                f"the runs '{runs[0].path}' and '{run.path}' were trained in environments with "
                "other settings; compare each for itself"
            )
    return runs, envs[0]


def sweep(run: Run, envs: Envs) -> list[dict[str, Any]]:
    """Every checkpoint of a run on the training questions, in the order of its steps, as JSON.

    `choices` are shares of the decisions between several legal actions.
    """
    space, found = shared_space(envs.values()), []
    for step in run.checkpoints:
        network = load_network(run, step, space)
        played, (choices, least) = play_greedily(network, envs, TRAIN)
        shares = {name: count / choices.total() for name, count in choices.most_common()}
        ends = shares.get(Action.TERMINATE, 0.0)
        found.append(
            {
                "step": step,
                "train": row_of(played),
                "choices": shares,
                "terminate": ends,
                "least_probability": least,
                "has_collapsed": least <= 0 or ends >= COLLAPSED,
            }
        )
    return found


def play_greedily(
    policy: Policy, envs: Envs, split: str
) -> tuple[list[Played], tuple[Counter[str], float]]:
    """Play every question of a split once, with the most probable action at each choice.

    Returns the episodes, and what `watch` says of the policy.
    """
    asked = [(env, question) for env in envs.values() for question in env.world.questions[split]]
    players = [env for env, _ in asked]
    turns = [Turn(question) for _, question in asked]
    episodes = play(policy, players, turns, lambda *said: masked_logps(*said).argmax(dim=-1))
    played = []
    for env, turn in zip(players, episodes.turns, strict=True):
        name, level = env.world.name, str(env.world.level(turn.question))
        key, actions = f"{name}/{turn.question.id}", tuple(map(str, turn.done))
        played.append(Played(key, name, level, turn.worth, actions))
    return played, watch(policy, episodes, players[0].action_names)


def make_heuristic(space: Space) -> Policy:
    """The published heuristic: Search, then one look at the list.

    Broad if the first passages hold little of the question, Narrow if the scores lie close
    together, and then the end.
    """
    # In the set `heads`, the first of three lists is that of the single pass.
    shown = space.slices.get("list") or space.slices["searches"]
    share, gap = (shown.start + [*LIST_FEATURES].index(one) for one in ("share_three", "gap_last"))
    begun = space.slices["step"].start + 1
    narrow, broad, end = map(space.actions.index, (Action.NARROW, Action.BROAD, Action.TERMINATE))

    def decide(seen_BSD: Tensor) -> Decided:
        chosen_BS = torch.where(seen_BSD[..., gap] < _CLOSE, narrow, end)
        chosen_BS = torch.where(seen_BSD[..., share] < _UNCOVERED, broad, chosen_BS)
        # Once, when one action was done; before it, Search alone is legal.
        chosen_BS = torch.where(seen_BSD[..., begun] > 0, chosen_BS, end)
        logits_BSA = torch.nn.functional.one_hot(chosen_BS, len(space.actions)).float()
        return Decided(logits_BSA, torch.zeros_like(seen_BSD[..., 0]))

    return decide


def _as_played(envs: Envs, values: Mapping[str, Values], chosen: Mapping[str, str]) -> list[Played]:
    """The episodes of a sequence on the test questions, from what is known of it."""
    found = []
    for name, env in envs.items():
        actions = tuple(chosen[name].split(", "))
        actions += (Action.TERMINATE,) * (len(actions) < env.max_steps)
        for question in env.world.questions[TEST]:
            level, worth = str(env.world.level(question)), values[name][chosen[name]][question.id]
            found.append(Played(f"{name}/{question.id}", name, level, worth, actions))
    return found


def worth_of(played: Iterable[Played]) -> dict[str, float]:
    """nDCG@k by question; the mean of those that were played several times."""
    found: dict[str, list[float]] = {}
    for one in played:
        found.setdefault(one.question, []).append(one.ndcg)
    return {key: fmean(values) for key, values in found.items()}


def compare_played(first: Sequence[Played], second: Sequence[Played]) -> dict[str, Paired]:
    """The first policy minus the second, paired by question: pooled, and of each collection."""
    strata = {one.question: one.collection for one in first}
    found = {}
    for part, names in parts_of(dict.fromkeys(strata.values())).items():
        ours, theirs = (
            {"ndcg": worth_of(one for one in played if one.collection in names)}
            for played in (first, second)
        )
        found[part] = compare(ours, theirs, strata)["ndcg"]
    return found


def row_of(played: Sequence[Played]) -> dict[str, Any]:
    """What the table says of one policy; `levels` have a mean and a count each.

    If a question was played several times (by several runs), the mean of them counts, once.
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
