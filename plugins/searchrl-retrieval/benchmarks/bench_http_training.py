"""Training with passages from a server: what 100 ms of latency per call cost.

    python plugins/searchrl-retrieval/benchmarks/bench_http_training.py [--latency-ms 100]

The same training is run against a retrieval server that answers at once and against one that holds
each answer back, in turns: one run of a few steps each, then again. Both servers are in processes
of their own and search the demo corpus. Compared is the median time of a step, sampling and update,
without the first step of a run; loading is not in it. `ratio` is that with latency over that
without; `searches` is how many searches a step makes. If waiting did not overlap, a step would take
`one by one`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))

from measuring import finish, make_parser, print_table, set_threads  # noqa: E402

TOOLS = ROOT / "benchmarks" / "slow_tools.py"
SIDES = ("without", "with")


def main() -> None:
    """Measure, print, write."""
    parser = make_parser(__doc__ or "", rounds=2)
    parser.add_argument("--latency-ms", type=float, default=100.0)
    parser.add_argument("--steps", type=int, default=4, help="steps of one run, the first included")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--model", default="tiny", help="tiny, or a model folder")
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve)
        return
    set_threads(args.threads)
    steps: dict[str, list[float]] = {side: [] for side in SIDES}
    searches: list[float] = []
    with contextlib.ExitStack() as stack:
        delays = dict(zip(SIDES, (0.0, args.latency_ms), strict=True))
        urls = {side: stack.enter_context(server(delays[side])) for side in SIDES}
        for _ in range(args.rounds):
            for side in SIDES:
                rows = train(urls[side], args)
                steps[side] += [row["sample_s"] + row["update_s"] for row in rows[1:]]
                searches += [row["searches"] * args.prompts * args.group_size for row in rows[1:]]
    base, slow = (statistics.median(steps[side]) for side in SIDES)
    one_by_one = base + args.latency_ms / 1000 * statistics.median(searches)
    print(
        f"{args.model}; steps of {args.prompts} x {args.group_size} episodes with "
        f"{statistics.median(searches):.0f} searches; every call takes {args.latency_ms:g} ms "
        "more\n"
    )
    print_table(
        ["latency", "s per step", "ratio", "one by one"],
        [["without", base, 1.0, None], ["with", slow, slow / base, one_by_one]],
    )
    finish(args, {"ratio": slow / base, "steps_s": steps, "searches": searches})


def train(url: str, args: Any) -> list[dict[str, float]]:
    """One run against a server; the times of its steps and the searches of an episode."""
    import searchrl

    with tempfile.TemporaryDirectory() as folder:
        run = searchrl.train(
            {
                "env": {"name": "slow"},
                "plugins": [str(TOOLS), "searchrl_retrieval"],
                "retriever": {"name": "http", "url": url},
                "model": {"name": args.model},
                "rollout": {"group_size": args.group_size, "prompts_per_step": args.prompts},
                "max_steps": args.steps,
                "num_threads": args.threads,
                "seed": args.seed,
                "run_dir": str(Path(folder) / "run"),
                "eval": {"every": 0, "num_tasks": 1, "num_tasks_during": 1, "forced": False},
            }
        )
        names = ("sample_s", "update_s", "searches")
        rows = [row for row in run.metrics if row["phase"] == "train"]
        return [{name: row[name] for name in names} for row in rows]


@contextlib.contextmanager
def server(latency_ms: float) -> Iterator[str]:
    """A retrieval server in a process of its own; where it is asked."""
    command = [sys.executable, __file__, "--serve", str(latency_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line}")
        yield f"{found[0]}/retrieve"
    finally:
        process.terminate()
        process.wait(30)


def serve(latency_ms: float) -> None:
    """Serve the demo corpus in the other process, and hold each answer back."""
    from searchrl_retrieval.http.app import Serving, make_app

    from searchrl.api_client import HttpServer
    from searchrl.data import Problems, load_corpus
    from searchrl.envs.corpus import DEMO_FOLDER
    from searchrl.retrieval import BM25Retriever

    passages = load_corpus(DEMO_FOLDER / "corpus.jsonl", Problems())
    app = make_app(Serving("bm25", BM25Retriever(passages), len(passages)))

    async def late(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.sleep(latency_ms / 1000)
        await app(scope, receive, send)

    http = HttpServer("127.0.0.1", 0)
    print(http.address, flush=True)
    http.make(late).run([http.socket])


if __name__ == "__main__":
    main()
