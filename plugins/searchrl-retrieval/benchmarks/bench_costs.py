"""Costs of retrievers as a corpus grows: build, disk, memory, and milliseconds per query.

    python bench_costs.py --data FOLDER --work FOLDER --count 200000 bm25 bm25s static:store=pq

Owns the measuring. The corpus has `--count` passages, the real ones of `--data` first, then those
of `generated`. Every retriever is built in one fresh process and searches in another one; the
queries are the real questions. Memory is the peak of resident pages of the whole process, mapped
files included. Seconds are those of the CPU, on one thread, so that other work on the machine does
not count; wall time is given as well. Results are kept in `--work` and not measured twice.
`--again` measures anew. A retriever is a name, then its settings: `static:store=pq,num_probes=64`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from generated import make_passages, read_real, read_real_queries
from measured import one_thread, peak_mib, print_table, timed
from searchrl_retrieval.index.build import build_index
from searchrl_retrieval.index.folder import open_index
from searchrl_retrieval.index.passages import PassageStore, write_passages
from searchrl_retrieval.index.places import IndexFactory

from searchrl import load_plugins, make_retriever_factory, parse_sets
from searchrl.contracts import Passage, Retriever

MIB = 1 << 20
BATCH, TOP = 64, 10
PLUGIN = "searchrl_retrieval"


def main() -> None:
    """Measure what was not measured yet, then print a table of everything in `--work`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("retrievers", nargs="*", help="NAME or NAME:KEY=VALUE,KEY=VALUE")
    parser.add_argument("--data", type=Path, required=True, help="folder of real collections")
    parser.add_argument("--work", type=Path, required=True, help="folder for indexes and results")
    parser.add_argument("--count", type=int, action="append", help="passages; may be repeated")
    parser.add_argument("--queries", type=int, default=512, help="queries that are timed")
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--drop", action="store_true", help="delete each index when it is measured")
    parser.add_argument("--only", choices=tuple(STEPS), help="one step, in this process")
    args = parser.parse_args()
    if args.only:
        (count,), (retriever,) = args.count, args.retrievers
        print(json.dumps(STEPS[args.only](args, count, retriever)))
        return
    args.work.mkdir(parents=True, exist_ok=True)
    for count in args.count or ():
        if not _corpus(args.work, count).exists():
            print(json.dumps(_run_alone(args, "corpus", count, "")), file=sys.stderr)
        for retriever in args.retrievers:
            _measure(args, count, retriever)
    rows = [json.loads(path.read_text("utf-8")) for path in sorted(args.work.glob("*.json"))]
    rows.sort(key=lambda row: (row["retriever"], row["count"]))
    print_table(rows, COLUMNS)
    _print_ratios(rows)


def _measure(args: argparse.Namespace, count: int, retriever: str) -> None:
    path = _folder(args.work, count, retriever).with_suffix(".json")
    if path.exists() and not args.again:
        return
    built = _run_alone(args, "build", count, retriever) if _is_kept(retriever) else {}
    searched = _run_alone(args, "search", count, retriever)
    result = {"retriever": retriever, "count": count, **built, **searched, **_machine()}
    path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result), file=sys.stderr)
    if args.drop:
        shutil.rmtree(_folder(args.work, count, retriever), ignore_errors=True)


def _run_alone(args: argparse.Namespace, step: str, count: int, retriever: str) -> dict[str, Any]:
    """A step in a process of its own, on one thread; the JSON that it prints last."""
    command = [sys.executable, __file__, retriever, "--only", step, "--count", str(count)]
    command += ["--data", str(args.data), "--work", str(args.work)]
    command += ["--queries", str(args.queries)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=one_thread())
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _write_corpus(args: argparse.Namespace, count: int, retriever: str) -> dict[str, Any]:
    path = _corpus(args.work, count)
    half = path.with_suffix(".half")  # a killed run leaves no corpus
    real = read_real(args.data)
    taken = timed(lambda: write_passages(half, make_passages(real, count)))[1]
    half.rename(path)
    return {"corpus_" + key: value for key, value in taken.items()}


def _build(args: argparse.Namespace, count: int, retriever: str) -> dict[str, Any]:
    name, settings = _read(retriever)
    kind = _find_factory(name).kind(**settings)
    store = PassageStore(_corpus(args.work, count))
    folder = _folder(args.work, count, retriever)
    shutil.rmtree(folder, ignore_errors=True)
    before = peak_mib()
    index, taken = timed(lambda: build_index(kind, store, folder))
    own = sum(path.stat().st_size for path in index.files.rglob("*") if path.is_file())
    return {
        **{"build_" + key: value for key, value in taken.items()},
        "build_peak_mib": peak_mib(),
        "build_peak_before_mib": before,
        "disk_mib": index.manifest.num_bytes / MIB,
        "disk_index_mib": own / MIB,
    }


def _search(args: argparse.Namespace, count: int, retriever: str) -> dict[str, Any]:
    queries = _take(read_real_queries(args.data), args.queries)
    started_mib = peak_mib()
    made, taken = timed(lambda: _open(args, count, retriever))
    found: dict[str, Any] = {"start_" + key: value for key, value in taken.items()}
    if _is_kept(retriever):  # once more, now that the libraries are imported
        taken = timed(lambda: _open(args, count, retriever))[1]
        found |= {"load_" + key: value for key, value in taken.items()}
    first = timed(lambda: made.search(queries[:1], TOP))[1]
    found |= {"first_query_ms": 1000 * first["wall_s"]}
    single = queries[: max(1, len(queries) // 8)]
    alone = timed(lambda: [made.search([query], TOP) for query in single])[1]
    found |= {"query_ms": 1000 * alone["cpu_s"] / len(single)}
    batches = [queries[at : at + BATCH] for at in range(0, len(queries), BATCH)]
    results, together = timed(lambda: [made.search(batch, TOP) for batch in batches])
    found |= {
        "batch_query_ms": 1000 * together["cpu_s"] / len(queries),
        "batch_query_wall_ms": 1000 * together["wall_s"] / len(queries),
        "peak_mib": peak_mib(),
        "peak_before_mib": started_mib,
        # Texts can be reached: they are read here.
        "characters": sum(len(p.text) for batch in results for row in batch for p in row),
    }
    return found


STEPS: dict[str, Callable[[argparse.Namespace, int, str], dict[str, Any]]] = {
    "corpus": _write_corpus,
    "build": _build,
    "search": _search,
}
"""Steps in a process of their own."""


def _open(args: argparse.Namespace, count: int, retriever: str) -> Retriever:
    name, settings = _read(retriever)
    if _is_kept(retriever):
        index = open_index(_folder(args.work, count, retriever))
        return index.retriever(_find_factory(name).kind(**settings))
    passages: Sequence[Passage] = tuple(PassageStore(_corpus(args.work, count)))
    return make_retriever_factory(load_plugins([PLUGIN]), name, settings)(passages)


def _read(retriever: str) -> tuple[str, dict[str, Any]]:
    name, _, rest = retriever.partition(":")
    settings: dict[str, Any] = {}
    for text in filter(None, rest.split(",")):
        settings |= parse_sets([text])
    return name, settings


def _find_factory(name: str) -> Any:
    return load_plugins([PLUGIN]).get("retriever", name).load()


def _is_kept(retriever: str) -> bool:
    return isinstance(_find_factory(_read(retriever)[0]), IndexFactory)


def _take(queries: Sequence[str], count: int) -> list[str]:
    """Some queries of every collection: they stand behind each other, so take every n-th."""
    step = max(1, len(queries) // count)
    return list(queries[::step][:count])


def _corpus(work: Path, count: int) -> Path:
    return work / f"corpus-{count}.sqlite"


def _folder(work: Path, count: int, retriever: str) -> Path:
    name = "".join(char if char.isalnum() else "-" for char in retriever)
    return work / f"{name}-{count}"


def _machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


COLUMNS = {
    "retriever": "retriever",
    "count": "passages",
    "build_cpu_s": "build CPU-s",
    "build_peak_mib": "build peak MiB",
    "disk_index_mib": "index MiB",
    "disk_mib": "with texts MiB",
    "start_cpu_s": "start CPU-s",
    "load_wall_s": "load s",
    "query_ms": "ms a query",
    "batch_query_ms": "in batches of 64",
    "peak_mib": "search peak MiB",
}


def _print_ratios(rows: Sequence[Mapping[str, Any]]) -> None:
    """Against the core's `bm25`, where it was measured on the same corpus."""
    cores = {row["count"]: row for row in rows if row["retriever"] == "bm25"}
    for row in rows:
        core = cores.get(row["count"])
        if core is not None and core is not row:
            faster = core["batch_query_ms"] / row["batch_query_ms"]
            share = row["peak_mib"] / core["peak_mib"]
            print(
                f"{row['retriever']} at {row['count']:,}: {faster:.1f} times the queries a second "
                f"of bm25 in batches of {BATCH}, {share:.2f} of its memory"
            )


if __name__ == "__main__":
    main()
