"""A front of shards beside one server of the whole: queries per second, and what the front costs.

    python bench_front.py --data FOLDER --work FOLDER [--shards 4] [--count 50000] [--named 22]

Every shard is a `searchrl serve-retriever` with `bm25s` over `--count` passages of `generated`; the
front is one with `shards`, and one more has all passages. One client asks the real questions, alone
and in batches of 64, the front and the whole by turns. CPU milliseconds are those of the process of
a server, so other work on the machine does not count in them. `--named` names every shard to the
front so many times: the cost of a front of more shards than a machine can hold. Indexes stay in
`--work`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx2
from bench_server import server
from generated import make_passages, read_real, read_real_queries
from measured import one_thread, print_table
from searchrl_retrieval.bm25s.kind import Bm25s
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.folder import has_index

BATCHES = (1, 64)
NUM_QUERIES, TOP = 512, 3


class Took(NamedTuple):
    """Milliseconds per query: of the clock, of the CPU of the server asked, of all its shards."""

    wall_ms: float
    cpu_ms: float
    shards_ms: float


def build(data: Path, work: Path, shards: int, count: int) -> tuple[list[Path], Path]:
    """The index of each shard and that of the whole; passages are dealt out in turn."""
    folders = [work / f"{count}-{number}-of-{shards}" for number in range(shards)]
    whole = work / f"{count}-whole-of-{shards}"
    if not all(map(has_index, (*folders, whole))):
        passages = list(make_passages(read_real(data), count * shards))
        for number, folder in enumerate(folders):
            build_index(Bm25s(), list(islice(passages, number, None, shards)), folder)
        build_index(Bm25s(), passages, whole)
    return folders, whole


def cpu_ms(process: int) -> float:
    """CPU milliseconds of a process so far, all threads (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(") ")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(url: str, queries: Sequence[str], batch: int, processes: Sequence[int]) -> Took:
    """Ask everything once. `processes`: the server asked, then its shards."""
    before, began = [*map(cpu_ms, processes)], time.perf_counter()
    with httpx2.Client(timeout=60) as client:
        for start in range(0, len(queries), batch):
            body = {"queries": queries[start : start + batch], "topk": TOP, "return_scores": True}
            client.post(f"{url}/retrieve", json=body).raise_for_status()
    wall_ms = 1000 * (time.perf_counter() - began)
    own, *others = (now - then for now, then in zip(map(cpu_ms, processes), before, strict=True))
    return Took(*(value / len(queries) for value in (wall_ms, own, sum(others))))


def main() -> None:
    """Build, serve, ask by turns, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of real collections")
    parser.add_argument("--work", type=Path, required=True, help="folder for indexes")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--count", type=int, default=50_000, help="passages of a shard")
    parser.add_argument("--named", type=int, help="shards of the front; default: --shards")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ |= one_thread()  # of the servers
    folders, whole = build(args.data, args.work, args.shards, args.count)
    queries = read_real_queries(args.data)[:NUM_QUERIES]
    took: dict[tuple[str, int], list[Took]] = defaultdict(list)
    with ExitStack() as stack:
        served = [
            stack.enter_context(server("--index", str(one), "--no-mcp"))
            for one in (*folders, whole)
        ]
        *parts, alone = [(url, process.pid) for url, process in served]
        urls = islice(cycle(url for url, _ in parts), args.named or args.shards)
        named = [f"{{name: http, url: '{one}/retrieve'}}" for one in urls]
        setting = f"retriever.shards=[{', '.join(named)}]"
        words = ("--retriever", "shards", "--set", setting, "--no-mcp")
        url, front = stack.enter_context(server(*words))
        sides = {
            "whole": (alone[0], [alone[1]]),
            "front": (url, [front.pid, *dict(parts).values()]),
        }
        for number in range(args.rounds + 1):
            for batch in BATCHES:
                for side, (address, processes) in sides.items():
                    found = ask(address, queries, batch, processes)
                    if number:  # the first round opens connections and reads pages
                        took[side, batch].append(found)
    rows = []
    for batch in BATCHES:
        for side in sides:
            wall, cpu, of_shards = (
                median(values) for values in zip(*took[side, batch], strict=True)
            )
            ratio = median(
                one.wall_ms / other.wall_ms
                for one, other in zip(took[side, batch], took["whole", batch], strict=True)
            )
            row = {"side": side, "batch": batch, "queries/s": 1000 / wall, "ms": wall}
            rows.append({**row, "times": ratio, "own CPU ms": cpu, "CPU ms of shards": of_shards})
    print(f"{len(named)} shards of {args.count:,} passages, {os.cpu_count()} threads, k={TOP}")
    print_table(rows, {key: key for key in rows[0]})


if __name__ == "__main__":
    main()
