"""Rollouts as the page holds them: one small row each in the index, the tokens in data files."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from searchrl.report.patterns import count_gold, count_searches, find_pattern
from searchrl.report.tokens import TokenTexts


class Index:
    """The small columns of all rollouts of a report, in the order of their numbers."""

    def __init__(self) -> None:
        names = ("tasks", "groups", "phases", "stops", "patterns", "failures", "origins")
        self._names: dict[str, dict[Hashable, int]] = {name: {} for name in names}
        """Numbers for values that many rollouts share."""
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self._scores: dict[str, list[float | None]] = {}
        self._pulls: dict[str, float] = {}
        self._segments: list[tuple[str, int]] = []
        """Why each segment begins, and its tokens, of rollouts that have several."""
        self._num_requests = 0

    def __len__(self) -> int:
        return len(self.columns["id"])

    def add(self, row: Mapping[str, Any], run: int) -> None:
        """Take in one rollout of the run of this number."""
        number, task = len(self), row["task"]

        def name(kind: str, value: Hashable) -> int:
            known = self._names[kind]
            return known.setdefault(value, len(known))

        group = f"{run}/{row['phase']}/{row['step']}/{row['group_id']}"
        pull = _pull(row)
        if pull is not None:
            place = f"{run}/{row['step']}"
            self._pulls[place] = self._pulls.get(place, 0.0) + pull
        gold, failure = count_gold(row), row["failure"]
        trouble = "not scored" if row["unscored"] else ""
        trouble = f"{failure['kind']}: {failure['owner']}" if failure else trouble
        values = {
            "run": run,
            "id": row["rollout_id"],
            "group": name("groups", group),
            "task": name("tasks", (row["env"], task["id"], task["kind"], task["question"])),
            "phase": name("phases", row["phase"]),
            "step": row["step"],
            "reward": short(row["reward"]),
            "advantage": short(mean_advantage(row["advantage"])),
            "stop": name("stops", row["stop_reason"]),
            "pattern": name("patterns", find_pattern(row)),
            "failure": name("failures", trouble),
            "origin": name("origins", row["origin"]),
            "turns": len(row["turns"]),
            "searches": count_searches(row),
            "tokens": row["authors"].count("M"),
            "gold": None if gold is None else short(gold[0] / gold[1]),
            "answer": None if row["final_answer"] is None else row["final_answer"][:80],
            "pull": short(pull),
        }
        for column, value in values.items():
            self.columns[column].append(value)
        starts, reasons = segments_of(row)
        if len(starts) > 1:
            sizes = [stop - start for start, stop in pairwise((*starts, len(row["ids"])))]
            self._segments += zip(reasons, sizes, strict=True)
            self._num_requests += len(row["turns"])
        for component, score in row["scores"].items():
            self._scores.setdefault(component, [None] * number).append(short(score))
        for of_component in self._scores.values():
            of_component.extend([None] * (number + 1 - len(of_component)))

    def describe_segments(self) -> str:
        """The rollouts of several segments in a sentence; empty if there is none."""
        if not self._segments:
            return ""
        reasons = Counter(reason for reason, _ in self._segments).most_common()
        size = sum(size for _, size in self._segments) / len(self._segments)
        told = ", ".join(f"{count:,} {reason or 'not told'}" for reason, count in reasons)
        return (
            f"rollouts of several segments: {self._num_requests:,} requests in "
            f"{len(self._segments):,} segments of {size:,.0f} tokens on average; why they begin: "
            f"{told}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The index as the page reads it."""
        return {
            "size": len(self),
            "columns": self.columns,
            "scores": self._scores,
            "pulls": {place: short(total) for place, total in self._pulls.items()},
            **{kind: list(known) for kind, known in self._names.items()},
        }


def describe_tokens(row: Mapping[str, Any], texts: TokenTexts) -> dict[str, Any]:
    """Everything of a rollout that the index does not have.

    Columns over tokens run over those the model wrote, in order; `authors` has all of them. What
    was not recorded is null.
    """
    ids, authors = row["ids"], row["authors"]

    def column(name: str) -> Any:
        values = row.get(name)
        if not isinstance(values, list):
            return short(values)
        return [short(v) for v, author in zip(values, authors, strict=True) if author == "M"]

    starts = [0, *(i for i in range(1, len(ids)) if row["turn"][i] != row["turn"][i - 1])]
    task = row["task"]
    return {
        "ids": ids,
        "texts": {str(place): text for place, text in texts.read(ids).items()},
        "authors": authors,
        "turn_starts": [[start, row["turn"][start]] for start in starts] if ids else [],
        "logp": column("sampler_logp"),
        "ratio": column("ratio"),
        "entropy": column("entropy"),
        "advantage": column("advantage"),
        "weight": column("weight"),
        "segments": list(zip(*segments_of(row), strict=True)),
        "parent": row.get("parent", ""),
        "num_kept": row.get("num_kept", 0),
        "turn_advantages": _turn_advantages(row),
        "origin": row["origin"],
        "clipped": row.get("clipped"),
        "policy_version": row["policy_version"],
        "answers": task["answers"],
        "gold_ids": task["gold_ids"],
        "slices": task.get("slices", []),
        "turns": row["turns"],
        "signals": row.get("signals", {}),
        "final_answer": row["final_answer"],
        "failure": row["failure"],
        "unscored": row["unscored"],
        "drawings": row.get("drawings", []),
    }


def segments_of(row: Mapping[str, Any]) -> tuple[list[int], list[str]]:
    """The first tokens of a rollout's segments, and why each begins."""
    starts = row.get("segments", [0])
    return starts, row.get("segment_reasons", [""] * len(starts))


def short(value: float | None) -> float | None:
    """Four digits of a number; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.4g}")


def mean_advantage(advantage: float | Sequence[float | None] | None) -> float | None:
    """The advantage of a rollout; the mean over its tokens where they have one each."""
    if not isinstance(advantage, list):
        return advantage  # type: ignore[return-value]  # a number, or None
    values = [value for value in advantage if value is not None]
    return sum(values) / len(values) if values else None


def _turn_advantages(row: Mapping[str, Any]) -> list[float | None]:
    """The mean advantage of each turn; None for one that is trained elsewhere, or nowhere."""
    given = row["advantage"]
    made: list[float | None] = []
    for number in range(len(row["turns"])):
        pairs = enumerate(zip(row["turn"], row["authors"], strict=True))
        places = [n for n, (turn, author) in pairs if turn == number and author == "M"]
        own = [given[n] for n in places] if isinstance(given, list) else [given] * bool(places)
        made.append(short(mean_advantage(own)))
    return made


def _pull(row: Mapping[str, Any]) -> float | None:
    """The sum of |weight x advantage| over its trained tokens that no clip took out."""
    weight, advantage = row.get("weight"), row["advantage"]
    if weight is None or advantage is None:
        return None
    clipped = set(row.get("clipped") or ())
    total = 0.0
    for place, ratio in enumerate(row["ratio"] or ()):
        if ratio is None or place in clipped:
            continue
        of_token, value = (
            one[place] if isinstance(one, list) else one for one in (weight, advantage)
        )
        total += (of_token or 0.0) * abs(value or 0.0)
    return total
