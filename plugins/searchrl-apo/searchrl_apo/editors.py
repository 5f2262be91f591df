"""Editors: from a candidate to new texts, each with the critique that it follows.

`OfflineEditor` needs no model: it goes by what sentences were worth so far. `ModelEditor` asks for
a fault that episodes show, and for a text without it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from pydantic import ValidationError

from searchrl import ConfigError, load_agent, show_value, suggest
from searchrl.api_client import Client, EndpointConfig, Message, Request
from searchrl_apo.evaluation import TRAIN, Candidate, Evaluator
from searchrl_apo.instructions import join, kept_in, mask, normalise, split

OFFLINE, ENDPOINT = "offline", "endpoint:"
GRADIENT_BATCH = 4  # training episodes that a critic is shown
Edit = tuple[str, str]  # a new text, and the critique that it follows
_PRIOR_EPISODES = 25.0  # a sentence counts as worth nothing until so many say otherwise
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
Ask = Callable[[str], str | None]
ASSETS = Path(__file__).resolve().parent / "assets"


class OfflineEditor:
    """Adds, drops, rephrases, joins and moves sentences; those of `lines`, and its own.

    A line holds wordings of one sentence, of which an instruction has one at most. What each is
    worth is drawn from a ridge regression of all rewards so far (Thompson sampling): effects are
    taken to add up. Sentences with tags stay.
    """

    def __init__(self, lines: Sequence[Sequence[str]], evaluator: Evaluator) -> None:
        own = (one.strip() for one in split(evaluator.candidates[0].text) if not kept_in(one))
        listed = {normalise(one) for line in lines for one in line}
        self._lines = [*lines, *([one] for one in own if normalise(one) not in listed)]
        self._words = {one: normalise(one) for line in self._lines for one in line}
        self._evaluator = evaluator

    def edit(self, parent: Candidate, count: int, rng: Random) -> list[Edit]:
        """Return `count` edits."""
        means, covariance = self._fit()
        mean, edits = dict(zip(self._words, means, strict=True)), list[Edit]()
        for seed in [rng.getrandbits(64) for _ in range(count)]:
            drawn = np.random.default_rng(seed).multivariate_normal(means, covariance)
            text, told = parent.text, list[str]()
            for old, new in self._find_changes(text, drawn)[: rng.randint(1, 3)]:
                text = _replace(text, old, new, rng)
                kind = "rephrase" if old and new else "add" if new else "drop"
                told.append(f"{kind} '{new or old}' ({mean[new or old]:+.2f})")
            edits.append((text, "; ".join(told)) if told else _reorder(text, rng))
        return edits

    def _fit(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and covariance of the effects of all sentences."""
        played = [
            (which, reward)
            for one in self._evaluator.candidates
            for which in [self._which(one.text)]
            for reward in one.rewards.values()
            if reward is not None
        ]
        has, rewards = (np.array(column, dtype=float) for column in zip(*played, strict=True))
        has, centred = has - has.mean(axis=0), rewards - rewards.mean()
        covariance = np.linalg.inv(has.T @ has + _PRIOR_EPISODES * np.eye(len(self._words)))
        return covariance @ has.T @ centred, max(rewards.var(), 1e-4) * covariance

    def _which(self, text: str) -> list[bool]:
        words = normalise(text)
        return [one in words for one in self._words.values()]

    def _find_changes(self, text: str, effects: np.ndarray) -> list[tuple[str, str]]:
        """Old and new wording ("": none) of every line that could be better, the best first."""
        there = dict(zip(self._words, self._which(text), strict=True))
        worth = dict(zip(["", *self._words], [0.0, *effects], strict=True))
        old = [next((one for one in line if there[one]), "") for line in self._lines]
        new = [max(["", *line], key=lambda one: worth[one]) for line in self._lines]
        # A wording that is only a part of a sentence, as after a join, stays.
        whole = {normalise(one) for one in ["", *split(text)] if not kept_in(one)}
        pairs = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
        changes = [pair for pair in pairs if normalise(pair[0]) in whole]
        return sorted(changes, key=lambda pair: worth[pair[0]] - worth[pair[1]])


def _replace(text: str, old: str, new: str, rng: Random) -> str:
    """Put a wording in the place of another one, or anywhere between sentences without tags."""
    pieces = split(text)
    free = [at for at, one in enumerate(pieces) if not kept_in(one)]
    if not old:
        pieces.insert(rng.choice([*free, len(pieces)]), new)
    for at in free if old else ():
        if normalise(old) == normalise(pieces[at]):
            pieces[at] = new and new + pieces[at][len(pieces[at].rstrip()) :]
    return join(filter(None, pieces))


def _reorder(text: str, rng: Random) -> Edit:
    """Move a sentence without tags, or join it and its neighbour."""
    pieces = split(text)
    free = [at for at, one in enumerate(pieces) if not kept_in(one)]
    pairs = [at for at in free if at + 1 in free]
    if pairs and rng.random() < 0.5:
        at = rng.choice(pairs)
        second = pieces.pop(at + 1)
        pieces[at] = f"{pieces[at].rstrip().rstrip('.!?')}, and {second[0].lower()}{second[1:]}"
        return join(pieces), "join two sentences"
    if len(free) > 1:
        at, to = rng.sample(free, 2)
        pieces.insert(to, pieces.pop(at))
    return join(pieces), "move a sentence"


@dataclass
class ModelEditor:
    """Asks a model: `ask` returns its reply to a text, or None if it gave none."""

    ask: Ask
    evaluator: Evaluator
    num_train: int

    def edit(self, parent: Candidate, count: int, rng: Random) -> list[Edit]:
        """Return `count` edits; each reply is in the journal before it is used."""
        form, journal = (ASSETS / "critic.txt").read_text("utf-8"), self.evaluator.journal
        tasks = rng.sample(range(self.num_train), min(GRADIENT_BATCH, self.num_train))
        self.evaluator.score(parent, TRAIN, tasks)
        rows = [journal[f"{parent.id} {TRAIN} {task}"] for task in tasks]
        shown = json.dumps(rows, ensure_ascii=False, indent=1)
        edits = list[Edit]()
        for _ in range(count):
            named = "; ".join(critique for _, critique in edits) or "none"
            asked = form.format(text=mask(parent.text), episodes=mask(shown), named=named)
            key = f"ask {hashlib.sha256(asked.encode('utf-8', 'replace')).hexdigest()}"
            if key not in journal:
                journal.put({key: self.ask(asked) or ""})
            critique, _, text = journal[key].strip().partition("\n")
            edits.append((text.replace("‹", "<").replace("›", ">").strip(), critique))
        return edits


def make_ask(editor: str, settings: Mapping[str, Any], plugins: Sequence[str]) -> Ask:
    """The way to ask the model of `endpoint:URL`, or a run or model here."""
    if not editor.startswith(ENDPOINT):
        agent = load_agent(editor, plugins=list(plugins))
        return lambda text: agent.ask(text).final_answer
    if "model" not in settings:
        raise ConfigError(f"--editor {editor} needs a model: --set editor.model=NAME")
    try:
        config = EndpointConfig.model_validate({k: v for k, v in settings.items() if k != "model"})
    except ValidationError as error:
        (first, *_) = error.errors()
        key, kind = ".".join(map(str, first["loc"])), first["type"]
        is_new = kind == "extra_forbidden"  # what a wrong name has may be a key
        value = "" if is_new or kind == "secret" else f" = {show_value(first['input'])}"
        known = suggest(key, EndpointConfig.model_fields) if is_new else ""
        raise ConfigError(f"editor.{key}{value}: {first['msg']}.{known}") from None
    client = Client(editor.removeprefix(ENDPOINT), str(settings["model"]), config, "editor")
    return lambda text: _THOUGHT.sub(
        "", client.complete(Request((Message("user", text),), 4096)).text
    )
