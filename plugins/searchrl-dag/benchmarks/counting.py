"""A table counted from rewards, beside training: exact match of `multisource` by rewards used.

    python plugins/searchrl-dag/benchmarks/counting.py counting.svg RUN [RUN ...]

Counting parses and reads as `cue_plan` and asks all sources that a plan has room for, best first.
Five seeds draw its training tasks; the interval is over them, all on the same 256 test tasks. Runs
are drawn with the exact match of their evaluations on validation tasks.
"""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from searchrl_dag.multisource.heuristics import Pairs, guess_task, make_cue_plan, told
from searchrl_dag.multisource.questions import combine
from searchrl_dag.multisource.world import SOURCES, kind_of
from searchrl_dag.plans.protocol import MAX_NODES

import searchrl
from searchrl.envs import Shown

JOINT = {"world_seed": 25, "joint_table": True, "mix": {"lookup": 2, "bridge": 1}}
WORLDS: Mapping[str, Mapping[str, Any]] = {"table": {"world_seed": 24}, "joint table": JOINT}
DEPTHS = {"noun and kind": 2, "noun, kind and query before": 3}
REWARDS, NUM_TESTS, NUM_SEEDS = (10, 20, 50, 100, 200, 500, 1000), 256, 5
PER_STEP = 160
ODD = 0.02  # weight of sources that do not explain a reward: an answer may be right by luck

Lines = dict[str, list[tuple[int, float]]]


class Counts:
    """Votes for the source of a query, one an episode, shared by what explains its reward."""

    def __init__(self, rng: Random, depth: int) -> None:
        self._rng, self._depth = rng, depth
        self._votes: dict[tuple[tuple[str, ...], str], float] = defaultdict(float)

    def rank(self, pairs: Pairs) -> list[list[str]]:
        """The sources to ask for each query, best first."""
        ranked = []
        for (_, name), keys in zip(pairs, self._keys(pairs), strict=True):
            shares = dict.fromkeys(SOURCES, 1 / len(SOURCES))
            for key in keys:  # few votes of a finer key count for little beside those before
                votes = {one: self._votes[key, one] + share for one, share in shares.items()}
                shares = {one: vote / sum(votes.values()) for one, vote in votes.items()}
            best = sorted(SOURCES, key=lambda one: (-shares[one], self._rng.random()))
            if name and not pairs[-1][1] and shares[best[0]] > 0.5:
                best = best[:1] * len(SOURCES)  # so that the next query can go to all sources
            ranked.append(best[: MAX_NODES // len(pairs)])
        return ranked

    def learn(
        self, question: str, ranked: list[list[str]], shown: Shown, answer: str, is_right: bool
    ) -> None:
        """Vote for the sources that explain the reward: they tell something, and it is right."""
        kind, word, pairs = guess_task(question)

        def follow(sources: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
            value = ""
            for (noun, name), source in zip(pairs, sources, strict=True):
                if entity := name or value:
                    texts = (one.text for one in shown.passages if one.id.startswith(f"{source}/"))
                    value = next(filter(None, (told(text, noun, entity) for text in texts)), "")
                    yield noun, entity, source, value

        asked = {query for plan in zip(*ranked, strict=True) for query in follow(plan)}
        weights = {}
        for plan in product(SOURCES, repeat=len(pairs)):
            queries = [*follow(plan)]
            values = [value for *_, value in queries]
            explains = all(values) and (combine(kind, values, word) == answer) == is_right
            weights[plan] = 1.0 if explains else ODD
            if not asked.issuperset(queries):  # not known what it would have said
                weights[plan] = 0.15 if is_right else 0.5
        for plan, weight in weights.items():
            for keys, source in zip(self._keys(pairs), plan, strict=True):
                for key in keys:
                    self._votes[key, source] += weight / sum(weights.values())

    def _keys(self, pairs: Pairs) -> Iterator[list[tuple[str, ...]]]:
        for noun, name in pairs:
            kind, before = kind_of(name), "" if name else pairs[0][0]
            yield [(noun,), (noun, kind), (noun, kind, before)][: self._depth]


def play(env: Any, counts: Counts, split: str, index: int) -> float:
    """The reward of an episode; one of training is counted."""
    task = env.reset(options={"split": split, "index": index})[1]["task"]
    ranked = counts.rank(guess_task(task.question)[2])
    policy = make_cue_plan(env, task, env.protocol, lambda pairs: ranked)
    env.step(policy.act(""))
    turn = policy.act("")
    reward, answer = float(env.step(turn)[1]), str(env.protocol.parse(turn).payload)
    if split == "train":
        counts.learn(task.question, ranked, policy.shown, answer, reward == 1)
    return reward


def count(settings: Mapping[str, Any], depth: int) -> dict[int, list[float]]:
    """Exact match on tests after so many rewards, of each seed."""
    env = searchrl.make_env("multisource", plugins=["searchrl_dag"], **settings).unwrapped
    reached: dict[int, list[float]] = {rewards: [] for rewards in REWARDS}
    for rng in map(Random, range(NUM_SEEDS)):
        counts = Counts(rng, depth)
        for number, index in enumerate(rng.sample(range(20_000), REWARDS[-1]), 1):
            play(env, counts, "train", index)
            if number in reached:
                tests = range(NUM_TESTS)
                reached[number].append(mean(play(env, counts, "test", n) for n in tests))
    return reached


def draw(panels: Mapping[str, Lines]) -> Iterator[str]:
    """SVG of exact match over rewards used, on a logarithmic axis."""
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 340" font-size="12">'
    yield '<rect width="100%" height="100%" fill="white"/>'
    for left, (title, lines) in zip((50, 450), panels.items(), strict=True):
        yield f'<text x="{left}" y="20">{title}: exact match by rewards used</text>'
        for share in (0, 0.5, 1):
            y = 260 - 220 * share
            yield f'<text x="{left - 28}" y="{y + 4:g}">{share}</text>'
            yield f'<path d="M{left} {y:g}h320" stroke="#ccc"/>'
        for power in range(1, 5):
            yield f'<text x="{left + 80 * power - 90}" y="276">{10**power:,}</text>'
        for number, (name, line) in enumerate(lines.items()):
            colour = ("#1f6f8b", "#2c7a3f", "#c0392b")[min(number, 2)]
            at = (f"{left + 80 * math.log10(x / 10):.1f},{260 - 220 * y:.1f}" for x, y in line)
            yield f'<polyline points="{" ".join(at)}" fill="none" stroke="{colour}"/>'
            yield f'<text x="{left}" y="{292 + 13 * number}" fill="{colour}">{name}</text>'
    yield "</svg>"


def main() -> None:
    """Count, print a row for each number of rewards, and draw."""
    svg, *runs = map(Path, sys.argv[1:])
    panels: dict[str, Lines] = {title: defaultdict(list) for title in WORLDS}
    for (title, settings), (name, depth) in product(WORLDS.items(), DEPTHS.items()):
        for rewards, reached in count(settings, depth).items():
            seen = searchrl.over_seeds(reached)
            em = f"{seen['value']:.3f} ± {seen['high'] - seen['value']:.3f}"
            print(f"| {title}, counted by {name} | {rewards:,} | {em} |", flush=True)
            panels[title][f"counted by {name}"].append((rewards, seen["value"]))
    for run in runs:
        is_joint = "joint_table: true" in (run / "config.yaml").read_text("utf-8")
        line = panels["joint table" if is_joint else "table"][f"trained, {run.name}"]
        for row in map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines()):
            if row.get("phase") == "during":
                line.append((PER_STEP * row["step"], row["metrics"]["em"]["value"]))
    svg.write_text("\n".join(draw(panels)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
