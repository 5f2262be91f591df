"""A small collection and an encoder without a model, for the tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from searchrl_control.environment.env import RetrievalControlEnv
from searchrl_control.searching.library import Floats, Library
from searchrl_retrieval.dense.encoders import as_text, normalise

from searchrl.contracts import Passage
from searchrl.retrieval import tokenize

DIM = 12

PASSAGES = (
    Passage("harbour", "The old harbour of Tolmere was dug by Ada Quill in spring.", "Tolmere"),
    Passage("quill", "An engineer who was born on an island and loved maps.", "Ada Quill"),
    Passage("market", "The market sells salt and honey on every Thursday.", "Market of salt"),
    Passage("honey", "Honey is made by bees and sold in glass.", "Honey"),
    Passage("salt", "Salt comes from the sea. Salt keeps fish. Salt is old.", "Salt"),
    Passage("dots", "…", ""),
    Passage("glass", "Glass is made of sand and sold to the harbour.", "Glass"),
    Passage("bees", "Bees live in a hive and make honey in spring.", "Bees"),
)

QUESTIONS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "q-salt": ("where does salt come from", {"salt": 2, "market": 1}),
    "q-quill": (
        "where was the engineer of the Tolmere harbour born",
        {"harbour": 1, "quill": 1},
    ),
    "q-hive": ("who makes honey in a hive", {"bees": 1}),
    "q-sand": ("sold to the harbour", {"glass": 1, "lost": 1}),
    "q-none": ("zebra quagga", {"honey": 1}),
    "q-fish": ("what keeps fish", {"salt": 1}),
}


class WordEncoder:
    """The mean of a vector per word, which is a function of the word; it is its own kind, too."""

    dim = DIM

    def __init__(self, name: str = "words") -> None:
        self.num_texts = 0
        self.built_with = {"name": name}

    def load_encoder(self) -> WordEncoder:
        return self

    def encode_queries(self, queries: Sequence[str]) -> Floats:
        self.num_texts += len(queries)
        found = np.zeros((len(queries), DIM), dtype=np.float32)
        for row, text in enumerate(queries):
            for word in tokenize(text):
                found[row] += vector_of(word)
        return normalise(found)

    def encode_passages(self, passages: Sequence[Passage]) -> Floats:
        return self.encode_queries([as_text(passage) for passage in passages])


def vector_of(word: str) -> Floats:
    digest = hashlib.sha256(word.encode()).digest()[:DIM]
    return (np.frombuffer(digest, dtype=np.uint8).astype(np.float32) - 127.5) / 128


def make_library(passages: Sequence[Passage] = PASSAGES) -> Library:
    encoder: Any = WordEncoder()
    with TemporaryDirectory() as cache:
        return Library(passages, encoder, Path(cache))


def write_beir(
    folder: Path,
    passages: Sequence[Passage],
    texts: Mapping[str, str],
    splits: Mapping[str, Sequence[tuple[str, Mapping[str, int]]]],
) -> Path:
    """A BEIR folder: the texts of questions by id, and who is judged in which split."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": p.id, "title": p.title, "text": p.text} for p in passages]
    asked = [{"_id": name, "text": text} for name, text in texts.items()]
    for name, lines in (("corpus", rows), ("queries", asked)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    for split, judged in splits.items():
        table = [f"{q}\t{p}\t{grade}" for q, qrels in judged for p, grade in qrels.items()]
        text = "\n".join(["query-id\tcorpus-id\tscore", *table]) + "\n"
        (folder / "qrels" / f"{split}.tsv").write_text(text, "utf-8")
    return folder


def write_toy(folder: Path, splits: Mapping[str, Sequence[str]] | None = None) -> Path:
    """The small collection; the first half of the questions is for training if nobody says."""
    ids = list(QUESTIONS)
    splits = splits or {"train": ids[: len(ids) // 2], "test": ids[len(ids) // 2 :]}
    judged = {name: [(q, QUESTIONS[q][1]) for q in of] for name, of in splits.items()}
    return write_beir(folder, PASSAGES, {q: text for q, (text, _) in QUESTIONS.items()}, judged)


def write_model(folder: Path, texts: Sequence[str]) -> Path:
    """A static model of the words of some texts, as `encoder: static` reads it."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = sorted({word for text in texts for word in tokenize(text)})
    vocabulary = {"[UNK]": 0} | {word: number for number, word in enumerate(words, 1)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    matrix = np.stack([np.zeros(DIM, np.float32), *(vector_of(word) for word in words)])
    save_file({"embeddings": matrix}, folder / "model.safetensors")
    return folder


def play(
    env: RetrievalControlEnv, split: str, act: Callable[[Any, Any], int]
) -> list[tuple[str, float, tuple[str, ...]]]:
    """Every task of a split once: the question, nDCG of the last list, and what was done."""
    found = []
    for index in range(env.num_tasks(split)):
        shown, info = env.reset(options={"split": split, "index": index})
        done: list[str] = []
        is_over = False
        while not is_over:
            shown, _, is_over, _, info = env.step(act(shown, info))
            done.append(info["action"].payload)
        task = info["task"]
        found.append((task.meta["question"], info["signals"]["ndcg"], tuple(done)))
    return found


def episode(settings: Mapping[str, Any], seed: int) -> list[Any]:
    """All that a random episode says, but for the ids."""
    env, rng = RetrievalControlEnv(**settings), Random(seed)
    shown, _ = env.reset(options={"split": "train", "index": seed % env.num_tasks("train")})
    told: list[Any] = []
    is_over = False
    while not is_over:
        shown, reward, is_over, _, info = env.step(rng.randrange(len(env.actions)))
        told += [reward, info["signals"], info["action_mask"].tolist(), info["query"]]
        told += [[passage.text for passage in info["passages"]]]
        told += [np.asarray(value).tolist() for value in shown.values()]
    return told


def act_fixed(env: RetrievalControlEnv, sequence: Sequence[int]) -> Callable[[Any, Any], int]:
    """The policy of a fixed sequence: Search, its actions, Terminate."""
    numbers = (0, *sequence, *[env.action_names.index("Terminate")] * env.max_steps)
    return lambda shown, info: numbers[int(shown["step"])]
