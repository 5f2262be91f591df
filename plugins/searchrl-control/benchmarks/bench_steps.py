"""How long an episode takes: cold (a collection is opened), and warm (every position is known).

    python benchmarks/bench_steps.py --collection scifact --data FOLDER --actions heads

Plays training questions with random legal actions, twice with the same draws: the first round
computes the positions, the second finds them. 28 episodes of 5 steps a second leave 7 ms for a
step, and the policy and the driver have to fit into them as well. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.environment.settings import SETS


def play(env: RetrievalControlEnv, questions: int, seed: int) -> tuple[int, float]:
    """Steps, and seconds of this process (not of the clock: other programs do not count)."""
    env.action_space.seed(seed)
    steps, began = 0, time.process_time()
    for index in range(questions):
        _, info = env.reset(options={"split": "train", "index": index})
        is_over = False
        while not is_over:
            action = env.action_space.sample(info["action_mask"])
            _, _, terminated, truncated, info = env.step(action)
            steps += 1
            is_over = terminated or truncated
    return steps, time.process_time() - began


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collection", default="demo")
    parser.add_argument("--data")
    parser.add_argument("--cache")
    parser.add_argument("--actions", default="published", choices=list(SETS))
    parser.add_argument("--questions", type=int, default=50)
    given = parser.parse_args()
    began = time.process_time()
    env = RetrievalControlEnv(
        collection=given.collection, data=given.data, cache=given.cache, actions=given.actions
    )
    opened_s = time.process_time() - began
    questions = min(given.questions, env.num_tasks("train"))
    told = {"collection": given.collection, "actions": given.actions, "questions": questions}
    told["passages"] = len(env.world.library.passages)
    told["observation"] = int(
        sum(np.prod(space.shape or (1,)) for space in env.observation_space.spaces.values())
    )
    told["open_s"] = round(opened_s, 2)
    for name in ("cold", "warm"):
        steps, seconds = play(env, questions, seed=1)
        told[f"{name}_ms_per_step"] = round(1000 * seconds / steps, 3)
        told[f"{name}_episodes_per_s"] = round(questions / seconds, 1)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
