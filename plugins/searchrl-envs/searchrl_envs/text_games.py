"""`textworld:KIND`: games of TextWorld, one made for each task; `textworld:FILE`: a made one."""

import os
import re
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Semaphore
from typing import Any
from uuid import NAMESPACE_OID, uuid5
from warnings import filterwarnings
from weakref import finalize

from pydantic import PositiveInt

from searchrl import ConfigError, cache_path, suggest, suggest_path
from searchrl.contracts import ACT, Action, TagProtocol, Task
from searchrl_envs.base import ForeignEnv, Reply, need

KINDS: dict[str, dict[str, Any]] = {
    "coin-collector": {"level": 5},
    "cooking": {"recipe": 1, "take": 1, "open": True},
    "custom": {},
    "simple": {"rewards": "dense", "goal": "brief"},
    "treasure-hunter": {"level": 5},
}
"""The kinds of games, and the options of each where `make` says nothing."""
INFOS = ("objective", "description", "policy_commands", "max_score", "won")
# At other signs, TextWorld's interpreter hangs, or ends the process; these words write files, or
# wait for yes or no.
_COMMAND = re.compile(
    r"(?ai)(?!.*\b(q|quit|restart|restore|save|script|transcrip\w*)\b)[a-z0-9 ,.'-]{1,150}"
)
_MAKING: defaultdict[Path, Lock] = defaultdict(Lock)  # a group begins with the same game
_AT_ONCE = Semaphore(os.cpu_count() or 1)


class TextWorld(ForeignEnv):
    """Games of a kind, one for each task; or the game of a file, the same in every split.

    The reward of a turn is the share of the game's points that it gains; the signal `won` is 1
    when the game is won. `make` holds options of TextWorld's command `tw-make`, such as
    `{level: 8}`. `goal` shows the game's goal, which may tell the whole way. `admissible` lists the
    commands that are possible.
    """

    sample = Action(ACT, "look")

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: Any = None,
        make: dict[str, Any] | None = None,
        goal: bool = True,
        admissible: bool = False,
        max_turns: PositiveInt = 50,
        num_tasks: PositiveInt = 1_000,
    ) -> None:
        num_tasks = num_tasks if name in KINDS else 1
        super().__init__(protocol, f"textworld:{name}", max_turns, num_tasks)
        need(self.name, "textworld")
        self._kind, self._goal, self._admissible = name, goal, admissible
        self._make = KINDS.get(name, {}) | (make or {})
        self._close: Callable[[], Any] = lambda: None
        if name in KINDS:
            self._make_game(0)  # wrong options are said now
        # At the first byte of another format, TextWorld's interpreter ends the process.
        elif not Path(name).is_file() or not name.endswith(
            f".z{int.from_bytes(Path(name).read_bytes()[:1])}"
        ):
            near = suggest_path(name) or suggest(name, KINDS)
            raise ConfigError(f"env {self.name}: no kind of games, and no file .z3 to .z8.{near}")

    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        import jericho
        import textworld

        seed = self.seed_of(split, index)
        file = self._make_game(seed) if self._kind in KINDS else Path(self._kind)
        infos = textworld.EnvInfos(**dict.fromkeys(INFOS, True))
        infos.admissible_commands = self._admissible
        filterwarnings("ignore", category=jericho.UnsupportedGameWarning)
        self._close()
        self._game = textworld.start(str(file), infos)
        # Its interpreter must be gone before its library is: with both in a cycle, Python crashes.
        self._close = finalize(self, self._game.close)
        self.state = self._game.reset()
        goal = f"{self.state.objective or ''}\n" * self._goal
        prompt = goal.lstrip() + self._tell(self.state.description or self.state.feedback)
        name = f"{self.name}/{split}/{index}"
        return Task(name, split, index, prompt, env=self.name, meta={"seed": seed}), prompt

    def _play(self, action: Action) -> Reply:
        if not _COMMAND.fullmatch(str(action.payload)):
            return Reply("A command is a few words in letters; nothing can be saved or restarted.")
        before = self.state.score or 0
        self.state, score, is_over = self._game.step(str(action.payload))
        gain = ((score or 0) - before) / (self.state.max_score or 1)
        won = {"won": float(bool(self.state.won))}
        return Reply(self._tell(self.state.feedback), gain, bool(is_over), won)

    def _tell(self, text: str) -> str:
        said = text.partition("\n>")[0]  # behind the prompt, some games print their status line
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        if self._admissible:
            lines.append(f"Commands: {', '.join(self.state.admissible_commands or ())}")
        return "\n".join(lines)

    def _make_game(self, seed: int) -> Path:
        """The file of the game of a seed; it is made if it is not in the cache."""
        make = {"recipe_seed": seed} if "take" in self._make else {}  # of cooking; else one recipe
        kind = f"tw-{self._kind.replace('-', '_')}"
        options = [kind if kind != "tw-custom" else "custom"]
        for key, value in (make | self._make).items():
            option = f"--{key.replace('_', '-')}"
            if "--third-party".startswith(option.partition("=")[0]):
                raise ConfigError(f"env {self.name}: env.make.{key}: foreign code is not run")
            options += [] if value is False else [option if value is True else f"{option}={value}"]
        recipe = repr([version("textworld"), *options, seed])
        file = cache_path("textworld") / f"{uuid5(NAMESPACE_OID, recipe)}.z8"
        if file.is_file():  # nobody waits for the games of others
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        with _MAKING[file], _AT_ONCE, TemporaryDirectory(dir=file.parent) as folder:
            if file.is_file():
                return file
            command = [sys.executable, f"{sysconfig.get_path('scripts')}/tw-make", *options]
            command += [f"--seed={seed}", f"--output={folder}/{file.name}", "--silent"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise ConfigError(f"env {self.name}: {done.stderr.strip().splitlines()[-1]}")
            for suffix in (".json", ".z8"):  # with the second one the game is there
                Path(folder, file.stem + suffix).replace(file.with_suffix(suffix))
        return file


class Expert:
    """Plays TextWorld's own winning commands. ConfigError: there are none."""

    def __init__(self, env: Any, task: Task, protocol: TagProtocol) -> None:
        self._env, self._protocol = env.unwrapped, protocol
        if not self._env.state.policy_commands:
            raise ConfigError(f"env {task.env} has no expert: no .json of TextWorld lies beside it")

    def act(self, observation: str) -> str:
        """The next command."""
        command = (self._env.state.policy_commands or ["look"])[0]
        return self._protocol.render_turn(Action(ACT, command))
