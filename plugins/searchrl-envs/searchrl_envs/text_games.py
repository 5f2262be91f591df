"""`textworld:KIND`: games of TextWorld, one made for each task; `textworld:FILE`: a made one."""

from __future__ import annotations

import hashlib
import json
from argparse import ArgumentParser
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, NoReturn
from warnings import catch_warnings

from pydantic import PositiveInt

from searchrl import ConfigError, cache_path, suggest, suggest_path
from searchrl.contracts import ACT, Action, TagProtocol, Task
from searchrl_envs.base import ForeignEnv, Reply, need

KINDS = ("coin-collector", "cooking", "custom", "simple", "treasure-hunter")
CUSTOM = ("nb_rooms", "nb_objects", "nb_parallel_quests", "quest_length", "quest_breadth")
INFOS = ("objective", "description", "admissible_commands", "policy_commands", "max_score", "won")
_ALONE = Lock()  # TextWorld draws from generators that are global, as are filters of warnings


class TextWorld(ForeignEnv):
    """Games of a kind, one for each task; or the game of a file, the same in every split.

    The reward is the share of the game's points that a turn gains; the signal `won` is 1 when the
    game is won. `make` holds TextWorld's settings of the kind and of its grammar, such as
    `{level: 8, only_last_action: true}`. `admissible` lists the commands that are possible.
    """

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: Any = None,
        make: dict[str, Any] | None = None,
        admissible: bool = False,
        max_turns: PositiveInt = 50,
        num_tasks: PositiveInt = 1_000,
    ) -> None:
        num_tasks = num_tasks if name in KINDS else 1
        super().__init__(protocol, f"textworld:{name}", max_turns=max_turns, num_tasks=num_tasks)
        need(self.name, "textworld", "textworld")
        self._kind, self._make, self._admissible = name, make or {}, admissible
        self._game: Any = None
        if name in KINDS:
            self._read_make()
        elif not Path(name).is_file():
            near = suggest_path(name) or suggest(name, KINDS)
            raise ConfigError(f"env {self.name}: there is no such file, nor kind of games.{near}")
        elif not name.endswith(tuple(f".z{byte}" for byte in Path(name).read_bytes()[:1])):
            # At the version of another format, TextWorld's interpreter ends the process.
            raise ConfigError(f"env {self.name} is no game of the Z-machine (.z3 to .z8)")

    def begin(self, split: str, index: int) -> tuple[Task, str]:
        """Begin a game."""
        import textworld

        seed = self.seed_of(split, index)
        with _ALONE, catch_warnings(action="ignore"):  # of games that are not old and famous
            file = self._make_game(seed) if self._kind in KINDS else self._kind
            self._game = textworld.start(
                str(file), textworld.EnvInfos(**dict.fromkeys(INFOS, True))
            )
            self.state = self._game.reset()
        question = self.state.objective or f"This is {Path(file).name}."
        name = f"{self.name}/{split}/{index}"
        task = Task(name, split, index, question, env=self.name, meta={"seed": seed})
        return task, f"{question}\n{self._tell(self.state.description or self.state.feedback)}"

    def play(self, action: Action) -> Reply:
        """Play a command."""
        if action.kind != ACT:
            return Reply(f"There is no {action.kind} here; write a command.")
        before = self.state.score or 0
        self.state, score, is_over = self._game.step(str(action.payload))
        gain = ((score or 0) - before) / (self.state.max_score or 1)
        won = float(bool(self.state.won))
        return Reply(self._tell(self.state.feedback), gain, bool(is_over), {"won": won})

    def _tell(self, text: str) -> str:
        said = text.partition("\n>")[0]  # behind the prompt, some games print their status line
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        if self._admissible:
            lines.append(f"Commands: {', '.join(self.state.admissible_commands or ())}")
        return "\n".join(lines)

    def _read_make(self) -> tuple[Any, dict[str, Any]]:
        """The options and the settings of games, as TextWorld reads them."""
        from textworld import GameOptions
        from textworld.challenges import CHALLENGES

        name, options, given = self.name, GameOptions(), list[str]()

        class Parser(ArgumentParser):
            def error(self, message: str) -> NoReturn:
                raise ConfigError(f"env {name}: env.make: {message}")

        for key, value in self._make.items():
            if key in options.grammar.__slots__:
                setattr(options.grammar, key, value)
            elif self._kind == "custom" and key in CUSTOM:
                setattr(options, key, value)
            elif value is not False:
                flag = f"--{key.replace('_', '-')}"
                given.append(flag if value is True else f"{flag}={value}")
        parser = Parser(add_help=False, allow_abbrev=False)
        if self._kind != "custom":
            CHALLENGES[f"tw-{self._kind.replace('-', '_')}"][2](parser)
        return options, vars(parser.parse_args(given))

    def _make_game(self, seed: int) -> Path:
        """The file of the game of a seed; it is made if it is not in the cache."""
        import textworld
        from textworld.challenges import CHALLENGES
        from textworld.generator import compile_game, make_game

        recipe = json.dumps([textworld.__version__, self._kind, self._make, seed], sort_keys=True)
        file = cache_path("textworld") / f"{hashlib.sha256(recipe.encode()).hexdigest()[:24]}.z8"
        if file.is_file():
            return file
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as folder:
            options, settings = self._read_make()
            options.seeds, options.path = seed, f"{folder}/{file.name}"
            if self._kind == "custom":
                game = make_game(options)
            else:
                make = CHALLENGES[f"tw-{self._kind.replace('-', '_')}"][1]
                settings |= {} if "recipe_seed" in self._make else {"recipe_seed": seed}
                game = make(settings, options)
            made = Path(compile_game(game, options))
            for suffix in (".json", ".z8"):  # with the second one the game is there
                made.with_suffix(suffix).replace(file.with_suffix(suffix))
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


def is_kind(name: str) -> bool:
    """True for a kind of games: it reads no file."""
    return name in KINDS
