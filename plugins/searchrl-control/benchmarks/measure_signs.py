"""The usual mean and spread of every sign, as `searchrl_control/environment/features.py` has them.

    python benchmarks/measure_signs.py --data ir --data multihop --collection scifact \
        --collection hotpotqa_distractor_pool --collection musique_pool

Plays each training question of each collection along every path of the set `heads` that `--paths`
random episodes take, and prints one line per sign. Every collection counts alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from searchrl_control.collections.judged import TRAIN
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.features import CANDIDATE_FEATURES, LIST_FEATURES, QUERY_FEATURES
from searchrl_control.environment.settings import HEADS

PARTS = {"searches": LIST_FEATURES, "terms": QUERY_FEATURES, "candidates": CANDIDATE_FEATURES}
LEAST = 0.01
"""A spread below it is this one: no sign is blown up."""

Seen = dict[str, list[NDArray[np.float32]]]


def collect(env: RetrievalControlEnv, paths: int, rng: np.random.Generator) -> Seen:
    """The rows of every part: each position of an episode once."""
    seen: Seen = {part: [] for part in PARTS}
    for index in range(env.num_tasks(TRAIN)):
        met: set[bytes] = set()
        for _ in range(paths):
            shown, info = env.reset(options={"split": TRAIN, "index": index})
            is_over = False
            while not is_over:
                action = int(rng.choice(np.flatnonzero(info["action_mask"])))
                shown, _, terminated, truncated, info = env.step(action)
                is_over = terminated or truncated
                for part, names in PARTS.items():
                    rows = shown[part].reshape(-1, len(names))
                    if rows.tobytes() not in met:
                        met.add(rows.tobytes())
                        seen[part].append(rows)
    return seen


def usual(collections: Sequence[Seen], part: str) -> tuple[list[float], list[float]]:
    """The mean and the spread of every sign of a part over the collections, each counting alike."""
    rows = [np.concatenate(seen[part]).astype(np.float64) for seen in collections]
    mean = np.mean([one.mean(axis=0) for one in rows], axis=0)
    square = np.mean([np.square(one).mean(axis=0) for one in rows], axis=0)
    spread = np.sqrt(np.maximum(square - np.square(mean), 0))
    return mean.tolist(), np.maximum(spread, LEAST).tolist()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", action="append", required=True)
    parser.add_argument("--data", action="append", default=[])
    parser.add_argument("--cache")
    parser.add_argument("--paths", type=int, default=8)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    collections = []
    for name in given.collection:
        data = next((one for one in given.data if (Path(one) / name).is_dir()), None)
        env = RetrievalControlEnv(collection=name, data=data, actions=HEADS, cache=given.cache)
        collections.append(collect(env, given.paths, rng))
    for part, names in PARTS.items():
        for name, mean, spread in zip(names, *usual(collections, part), strict=True):
            print(f'    "{name}": ({mean:.2f}, {spread:.2f}),')


if __name__ == "__main__":
    main()
