"""Seconds of a training step with an agent at the address, as a multiple of the built-in loop.

    python plugins/searchrl-agents/benchmarks/step_time.py [--turns 1] [--pairs 8] [--client http]

The tiny model plays `regulations`, the same seeds and tasks on both sides, in pairs whose order
alternates. With one turn both sides sample the same tokens, which is checked. With several turns
the results of searches stand in messages of the chat template on one side and inline on the
other, so that other tokens follow: then times are compared per sampled token. `--client http` asks
by the standard library: what the `openai` client costs is then left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from openai import OpenAI

STOPS = ["</search>", "</answer>"]
MAX_TOKENS = 96


@cache
def _client() -> OpenAI:
    """One for all rollouts: making one takes longer than a short rollout."""
    return OpenAI(base_url="http://its-own", api_key="its own", max_retries=0)


def _ask_by_openai(base_url: str, api_key: str, route: str, body: Any) -> Any:
    client = _client().with_options(api_key=api_key, base_url=base_url)
    if route == "/chat/completions":
        return client.chat.completions.create(**body).model_dump()
    return client.post(route, body=body, cast_to=dict[str, Any])


def _ask_by_http(base_url: str, api_key: str, route: str, body: Any) -> Any:
    head = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    sent = Request(base_url + route, json.dumps(body).encode(), head)
    with urlopen(sent) as reply:
        return json.load(reply)


def act(task: Any, base_url: str, api_key: str) -> str:
    """Search until the policy answers or no turn is left, as the built-in loop does."""
    ask = _ask_by_openai if os.environ["CLIENT"] == "openai" else _ask_by_http
    messages: list[Any] = [{"role": "user", "content": task["question"]}]
    for _ in range(int(os.environ["TURNS"])):
        body = {"model": "policy", "messages": messages, "stop": STOPS, "max_tokens": MAX_TOKENS}
        more = {"include_stop_str_in_output": True}
        body |= {"extra_body": more} if ask is _ask_by_openai else more
        made = ask(base_url, api_key, "/chat/completions", body)
        text = made["choices"][0]["message"]["content"] or ""
        messages.append({"role": "assistant", "content": text})
        query = re.search(r"<search>(.*)</search>", text, re.DOTALL)
        if query is None:
            answer = re.search(r"<answer>(.*)</answer>", text, re.DOTALL)
            return answer[1].strip() if answer else text
        asked = {"query": query[1].strip() or "?"}
        found = ask(base_url, api_key, "/searchrl/tools/search", asked)
        messages.append({"role": "user", "content": found["result"]})
    return "unknown"


def make_session(turns: int, prompts: int, seed: int, has_agent: bool) -> Any:
    """A training session whose steps are timed."""
    from searchrl.engine.learning.workers import ALONE
    from searchrl.plugins import load_plugins
    from searchrl.programs.setup.planning import plan_run
    from searchrl.programs.setup.session import Session

    settings: dict[str, Any] = {
        "plugins": ["searchrl_agents"],
        "env": {"name": "regulations", "max_turns": turns},
        "reward": "em",
        "model": "tiny",
        "seed": seed,
        "rollout": {
            "group_size": 8,
            "prompts_per_step": prompts,
            "max_turn_tokens": MAX_TOKENS,
            "temperature": 1.0,
        },
        # Weights that stay as they are sample the same; every rollout is computed.
        "optim": {"lr": 0.0},
        "algorithm": {"beta": 0.001},
    }
    if has_agent:
        settings["wrapper"] = {"name": "agent", "command": f"{Path(__file__)}:act"}
    registry = load_plugins(settings["plugins"])
    return Session(plan_run(settings), registry, ALONE, lambda text: None)


def take_step(session: Any, step: int) -> tuple[list[Any], float, float, float]:
    """(trajectories, seconds of sampling, of the step, and of CPU for it, by all threads)."""
    started, cpu = time.perf_counter(), time.process_time()
    drawn = session.sample(step)
    sampled = time.perf_counter()
    session.update(drawn, step)
    ended = time.perf_counter()
    failed = [one.scored.failure for one in drawn.rollouts if one.scored.failure]
    assert not failed, failed[0].message + failed[0].detail
    return (
        [r.trajectory for r in drawn.rollouts],
        sampled - started,
        ended - started,
        time.process_time() - cpu,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=8, help="of 8 rollouts each")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--client", choices=("openai", "http"), default="openai")
    args = parser.parse_args()
    os.environ["TURNS"], os.environ["CLIENT"] = str(args.turns), args.client
    sessions = [make_session(args.turns, args.prompts, args.seed, agent) for agent in (False, True)]
    ratios: dict[str, list[float]] = {"sampling": [], "step": [], "step CPU": []}
    seconds: list[list[float]] = [[], []]
    for step in range(args.pairs + 1):
        made: dict[int, tuple[list[Any], float, float, float]] = {}
        for side in (0, 1) if step % 2 else (1, 0):
            made[side] = take_step(sessions[side], step + 1)
        plain, served = made[0], made[1]
        tokens = [sum(one.num_model_tokens for one in made[side][0]) for side in (0, 1)]
        if args.turns == 1:
            assert [one.ids for one in plain[0]] == [one.ids for one in served[0]]
        if step:  # the first pair warms up
            for place, name in enumerate(ratios, 1):
                ratios[name].append(served[place] / tokens[1] / (plain[place] / tokens[0]))
            for side in (0, 1):
                seconds[side].append(made[side][2])
        print(f"step {step + 1}: {tokens[0]} and {tokens[1]} sampled tokens", flush=True)
    what = "the same tokens" if args.turns == 1 else "per sampled token"
    print(f"{8 * args.prompts} rollouts of at most {args.turns} turns, {what}")
    for name, taken in zip(("built-in", "agent"), seconds, strict=True):
        print(f"{name:<9} {statistics.median(taken):.3f} s per step")
    for name, found in ratios.items():
        low, *_, high = sorted(found)
        print(
            f"{name:<9} ratio {statistics.median(found):.3f} (pairs from {low:.3f} to {high:.3f})"
        )
    for session in sessions:
        session.close()


if __name__ == "__main__":
    main()
