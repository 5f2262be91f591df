"""The retrieval server under load: many clients at once, for a minute, on this machine.

    python plugins/searchrl-retrieval/benchmarks/bench_server.py [--clients 200] [--seconds 60]

`searchrl serve-retriever` runs in a process of its own over made-up passages. As many clients as
asked for send requests of a few queries, one after the other, over connections that they keep, and
check that each answer is their own. Printed are requests per second, the times of a request, what
failed, and the server's memory: after a tenth of the time, at the end, and its peak. Bounded memory
means that the last two are near the first (`growth`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import httpx2

_MIB = 1 << 20


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=2, help="queries of one request")
    parser.add_argument("--retriever", default="bm25")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus, args.passages)
        words = ("--corpus", str(corpus), "--retriever", args.retriever)
        with server(*words) as (url, process):
            result = asyncio.run(load(url, process, args))
    print(json.dumps(result, indent=2))
    if args.json is not None:
        args.json.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    if result["failures"]:
        sys.exit(1)


def write_corpus(path: Path, count: int) -> None:
    """Passages of a hundred words; `word7` is in passage 7 only."""
    rng = Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = [f"word{number}", *(f"w{rng.randrange(5000)}" for _ in range(100))]
            row = {"id": f"p{number}", "title": f"Text {number}", "text": " ".join(words)}
            file.write(json.dumps(row) + "\n")


@contextlib.contextmanager
def server(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command with these flags, from when it answers; its address and its process."""
    command = ["--plugin", "searchrl_retrieval", "serve-retriever", "--port", "0", *words]
    process = subprocess.Popen(
        [sys.executable, "-m", "searchrl", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"(http://\S+)/retrieve", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line}")
        yield found[1], process
    finally:
        process.terminate()
        process.wait(30)


async def load(url: str, process: subprocess.Popen[str], args: Any) -> dict[str, Any]:
    """Ask for as long as is wanted; the figures."""
    failures: Counter[str] = Counter()
    took_s: list[float] = []
    until = time.monotonic() + args.seconds
    limits = httpx2.Limits(max_connections=args.clients, max_keepalive_connections=args.clients)

    async def client(line: httpx2.AsyncClient, number: int) -> None:
        rng = Random(number)
        while time.monotonic() < until:
            wanted = [rng.randrange(args.passages) for _ in range(args.queries)]
            queries = [f"word{one} w{rng.randrange(5000)}" for one in wanted]
            began = time.monotonic()
            try:
                body = {"queries": queries, "topk": 3, "return_scores": True}
                answer = await line.post(f"{url}/retrieve", json=body)
                answer.raise_for_status()
                first = [found[0]["document"]["id"] for found in answer.json()["result"]]
                if first != [f"p{one}" for one in wanted]:
                    failures["the answer of somebody else"] += 1
            except httpx2.HTTPError as error:
                failures[type(error).__name__] += 1
            took_s.append(time.monotonic() - began)

    async def watch() -> int:
        await asyncio.sleep(args.seconds / 10)
        return memory_of(process.pid)[0]

    async with httpx2.AsyncClient(limits=limits, timeout=60, verify=False) as line:
        clients = [client(line, number) for number in range(args.clients)]
        early, *_ = await asyncio.gather(watch(), *clients)
    now, peak = memory_of(process.pid)
    took_s.sort()
    return {
        "clients": args.clients,
        "seconds": args.seconds,
        "queries_of_a_request": args.queries,
        "requests": len(took_s),
        "requests_per_s": round(len(took_s) / args.seconds, 1),
        "failures": dict(failures),
        "median_ms": round(1000 * took_s[len(took_s) // 2], 1),
        "p99_ms": round(1000 * took_s[int(len(took_s) * 0.99)], 1),
        "slowest_ms": round(1000 * took_s[-1], 1),
        "memory_mib": {name: round(size / _MIB, 1) for name, size in
                       {"early": early, "end": now, "peak": peak}.items()},
        "growth": round(peak / early, 3) if early else None,
        "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def memory_of(process: int) -> tuple[int, int]:
    """Memory that a process holds, and its peak, in bytes (Linux; 0 elsewhere)."""
    try:
        text = Path(f"/proc/{process}/status").read_text("ascii")
    except OSError:
        return 0, 0
    sizes = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", text, re.MULTILINE))
    return int(sizes.get("VmRSS", 0)) * 1024, int(sizes.get("VmHWM", 0)) * 1024


if __name__ == "__main__":
    main()
