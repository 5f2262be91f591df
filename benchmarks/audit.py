"""Precision and recall of `searchrl audit` on a copy of a data set that is damaged on purpose.

    python benchmarks/audit.py QUESTIONS [--corpus FILE] [--passages 100000] [--retriever NAME]

10 % of the gold passages are removed, 5 % of the training questions are copied into the test split
(every second one without one of its words), and 3 % of the questions get their answer in brackets.
`undamaged` is what is found before that; it counts against precision. `--passages` fills the corpus
up with words of its passages in random order, to measure time and memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from searchrl.config import build_config
from searchrl.core.episode import Passage
from searchrl.data.dataset import load_dataset
from searchrl.data.questions import Question
from searchrl.plugins import load_plugins
from searchrl.programs.setup.audit import Audited, audit, write_kept

FINDINGS = {"gold removed": "no passage", "copied": "same in split", "answer told": "its answer"}


def find(
    splits: dict[str, list[Question]], passages: dict[str, Passage], retriever: str
) -> dict[str, set[str]]:
    """The ids of the questions with each finding, as the command finds them."""
    rows = [Audited(split, one) for split, part in splits.items() for one in part]
    with tempfile.TemporaryDirectory() as folder:
        files = write_kept(rows, list(passages.values()), Path(folder) / "questions.jsonl")
        env = {"name": "corpus", **{name: str(file) for name, file in files.items()}}
        config = build_config({"env": env, "retriever": retriever})
        found, _ = audit(config, load_plugins(config.plugins), lambda *phase: None)
    return {
        name: {row.question.id for row in found if any(said in one for one in row.reasons)}
        for name, said in FINDINGS.items()
    }


def main() -> None:
    """Damage, audit, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("questions")
    parser.add_argument("--corpus")
    parser.add_argument("--passages", type=int, default=0)
    parser.add_argument("--retriever", default="bm25")
    given, rng = parser.parse_args(), random.Random(0)
    data = load_dataset(given.questions, given.corpus)
    splits = {split: list(part) for split, part in data.questions.items()}
    passages = {passage.id: passage for passage in data.passages}
    for number in range(len(passages), given.passages):
        words = data.passages[number % len(data.passages)].text.split()
        text = " ".join(rng.sample(words, len(words)))
        passages[f"made-{number}"] = Passage(f"made-{number}", text)
    undamaged = find(splits, passages, given.retriever)

    truth: dict[str, set[str]] = {name: set() for name in FINDINGS}
    removed = set(rng.sample(sorted(data.gold), len(data.gold) // 10))
    for part in splits.values():
        those = [n for n, one in enumerate(part) if one.answers]
        for n in rng.sample(those, round(0.03 * len(those))):
            told = f"{part[n].question} ({part[n].answers[0]})"
            part[n] = replace(part[n], question=told)
            truth["answer told"].add(part[n].id)
    whole = [one for one in splits["train"] if one.id not in truth["answer told"]]
    for number, one in enumerate(rng.sample(whole, round(0.05 * len(splits["train"])))):
        words = one.question.split()
        words = words[number % 2 :]
        splits["test"].append(replace(one, id=f"{one.id}-copy", question=" ".join(words)))
        truth["copied"].add(f"{one.id}-copy")
    every = [one for part in splits.values() for one in part]
    truth["gold removed"] = {one.id for one in every if removed.intersection(one.gold_ids)}
    kept = {name: one for name, one in passages.items() if name not in removed}
    began = time.monotonic()
    found = find(splits, kept, given.retriever)
    for name, there in truth.items():
        right, shown = len(found[name] & there), len(found[name])
        print(
            f"{name}: {len(there)} damaged, {shown} found, undamaged {len(undamaged[name])}, "
            f"precision {right / max(shown, 1):.3f}, recall {right / max(len(there), 1):.3f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(kept):,} passages, {len(every):,} questions: {time.monotonic() - began:.1f} s, "
        f"{peak:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
