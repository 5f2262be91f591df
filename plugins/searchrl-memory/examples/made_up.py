"""Two made-up environments that nobody solves without a memory, or without a procedure.

`told`: the codes of lockers are told in some episodes (`part: tell`) and asked for in others.
`desk`: somebody reports something in words of their own, and wants the form that the procedure in
`sops/` ends with.
"""

import json
import re
from pathlib import Path
from random import Random
from typing import Literal

import gymnasium

from searchrl import hookimpl
from searchrl.contracts import ANSWER, TOOL, Action, Task, ToolCall
from searchrl.envs import TextSpace, ensure_index, ensure_split

FIRST = (
    "Ada Ben Cora Dov Elif Finn Greta Hugo Ines Jon Kaya Leo Mira Nils Olga Pia Rosa Sam".split()
)
LAST = "Abel Brand Cole Dahl Ekman Fuchs Gruber Holm Ilves Jung Kern Lind Moser Nowak Orban".split()
SPLITS = {"train": range(96), "validation": range(96, 128), "test": range(128, 256)}  # of people

HERE = Path(__file__).parent
WORDINGS = json.loads((HERE / "wordings.json").read_text("utf-8"))


class MadeUp(gymnasium.Env):
    """An environment of questions that is over with an answer, and has no tool of its own."""

    def __init__(self, *, protocol, retriever=None, max_turns: int = 2, world_seed: int = 0):
        self.protocol, self.max_turns, self.world_seed = protocol, max_turns, world_seed
        self.budget = None
        self.action_space = TextSpace(turns=["", protocol.render_turn(Action(ANSWER, "B-17"))])
        self.observation_space = TextSpace()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        split = ensure_split(self.name, (options or {}).get("split", "train"), self.splits)
        total = self.num_tasks(split)
        index = (options or {}).get("index", self.np_random.integers(total))
        self.task = self.make_task(split, ensure_index(self.name, split, index, total))
        self.turns_left = self.max_turns
        return self.task.question, {"task": self.task}

    def step(self, action):
        parsed = self.protocol.parse(action)
        is_over, self.turns_left = parsed.kind == ANSWER, self.turns_left - 1
        reward = float(is_over and parsed.payload in self.task.answers)
        reply = "" if is_over else self.protocol.render_notice("That is no answer.", self.budget)
        return reply, reward, is_over, not is_over and not self.turns_left, {"action": parsed}


class Told(MadeUp):
    """Codes of lockers: told (`part: tell`, all of them in the split `train`), or asked for."""

    name, splits = "told", tuple(SPLITS)

    def __init__(self, *, part: Literal["ask", "tell"] = "ask", **settings):
        super().__init__(**settings)
        self.part = part
        draw = Random(f"told/{self.world_seed}")
        names = draw.sample([f"{one} {two}" for one in FIRST for two in LAST], 256)
        codes = draw.sample(range(1000, 10000), 256)
        self.people = [*zip(names, map(str, codes), strict=True)]

    def num_tasks(self, split):
        is_all = self.part == "tell" and split == "train"
        return 256 if is_all else len(SPLITS[ensure_split(self.name, split, SPLITS)])

    def make_task(self, split, index):
        name, code = self.people[SPLITS[split][0] + index]
        told = f"The locker of {name} has the code {code}."
        question = f"Which code has {name}'s locker?"
        return Task(
            id=f"told-{self.part}-{self.world_seed}-{split}-{index}",
            split=split,
            index=index,
            question=told if self.part == "tell" else question,
            answers=("done",) if self.part == "tell" else (code,),
            env="told",
        )


class Desk(MadeUp):
    """Reports at a help desk, in three wordings in `test`, after which no procedure was written."""

    name, splits = "desk", ("train", "test")

    def num_tasks(self, split):
        return {"train": 12, "test": 36}[ensure_split(self.name, split, self.splits)]

    def make_task(self, split, index):
        name, wordings = [*WORDINGS.items()][index % 12]
        wording = wordings[1 + index // 12 if split == "test" else 0]
        steps = json.loads((HERE / "sops" / f"{name}.json").read_text("utf-8"))["steps"]
        form = re.search(r"\w-\d\d", steps[-1]["action"])[0]
        return Task(
            id=f"desk-{split}-{index}",
            split=split,
            index=index,
            question=f"{wording} Which form is filed in the end?",
            answers=(form,),
            kind=name,
            env="desk",
        )


class Player:
    """Keeps what it is told; else calls a tool with the question and answers with what it reads."""

    def __init__(self, env, task, protocol):
        self.task, self.protocol, self.has_called = task, protocol, False
        self.name = re.search(r"\w+ \w+(?='s locker)", task.question)

    def act(self, observation):
        if self.has_called:
            answer = self._read(observation)
            return self.protocol.render_turn(Action(ANSWER, answer), f"It is {answer}.")
        self.has_called = True
        call = ToolCall("procedure", {"query": self.task.question})
        if self.task.answers == ("done",):
            call = ToolCall("remember", {"text": self.task.question})
        elif self.name:
            call = ToolCall("recall", {"query": f"locker of {self.name[0]}"})
        return self.protocol.render_turn(Action(TOOL, call), "I use my memory.")

    def _read(self, observation):
        if self.task.answers == ("done",):
            return "done"
        wanted = rf"of {self.name[0]} has the code (\d+)" if self.name else r"file form (\w-\d\d)"
        found = re.search(wanted, observation)
        return found[1] if found else "unknown"


class Guesser(Player):
    """Answers at once, with a guess."""

    def act(self, observation):
        guess = Random(self.task.id).choice(["1234", "4711", "B-17"])
        return self.protocol.render_turn(Action(ANSWER, guess), f"It is {guess}.")


@hookimpl
def register_envs(register):
    for made in (Told, Desk):
        register(
            made.name,
            made,
            protocol="tool-call",
            reward="em",
            scripts={"keeper": Player, "guesser": Guesser},
            description=made.__doc__.splitlines()[0],
        )
