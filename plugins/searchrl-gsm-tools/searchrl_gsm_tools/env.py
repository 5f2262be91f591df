"""The episode: a problem, calls of the calculator, an answer; and a scripted policy."""

import re

import gymnasium
from gymnasium.error import ResetNeeded

from searchrl import ConfigError
from searchrl.contracts import ANSWER, TOOL, Action, Table, ToolCall
from searchrl.envs import TextSpace, ensure_index, ensure_split
from searchrl_gsm_tools.calculator import calculate
from searchrl_gsm_tools.problems import NUM_TASKS, make_task


class GsmTools(gymnasium.Env):
    """A word problem per episode. Settings: `max_turns`, `world_seed`."""

    def __init__(self, *, protocol, retriever=None, max_turns: int = 6, world_seed: int = 0):
        self.protocol, self.max_turns, self.world_seed = protocol, max_turns, world_seed
        self.budget = None  # how long an observation may be: set by whoever plays
        try:
            turns = [_call(protocol, "12 * 34"), _call(protocol, "1 / 0"), "12 * 34"]
        except ValueError as error:
            raise ConfigError(f"env gsm_tools needs --protocol tool-call: {error}") from error
        self.action_space = TextSpace(turns=[*turns, protocol.render_turn(Action(ANSWER, "408"))])
        self.observation_space = TextSpace()
        self.task, self.turns_left = None, 0

    def num_tasks(self, split):
        """Number of problems in a split."""
        return NUM_TASKS[ensure_split("gsm_tools", split, NUM_TASKS)]

    def reset(self, *, seed=None, options=None):
        """Put the problem of `options` (`split`, `index`)."""
        super().reset(seed=seed)
        split = (options or {}).get("split", "train")
        total = self.num_tasks(split)
        index = (options or {}).get("index", self.np_random.integers(total))
        index = ensure_index("gsm_tools", split, index, total)
        self.task, self.turns_left = make_task(split, index, self.world_seed), self.max_turns
        return f"{self.task.question} Answer with the number alone.", {"task": self.task}

    def step(self, action):
        """Calculate, or take the answer."""
        if not self.turns_left:
            raise ResetNeeded("env gsm_tools: call reset() before step(), and after an episode")
        parsed = self.protocol.parse(action)
        is_over = parsed.kind == ANSWER
        self.turns_left = 0 if is_over else self.turns_left - 1
        reward = float(is_over and parsed.payload in self.task.answers)
        reply = "" if is_over else self.protocol.render_notice(_reply(parsed), self.budget)
        info = {"task": self.task, "action": parsed}
        return reply, reward, is_over, not is_over and not self.turns_left, info

    def draw_episode(self, episode):
        """Table of the calculations and their results."""
        rows = [
            [number, turn.action.payload.arguments["expression"], _reply(turn.action)]
            for number, turn in enumerate(episode.turns, 1)
            if _is_calculation(turn.action)
        ]
        return [Table("calculations", ["turn", "expression", "result"], rows)] if rows else []


def _reply(action):
    """Reply to a turn that is no answer: a result or an error, as text."""
    if _is_calculation(action):
        return calculate(action.payload.arguments["expression"])
    return action.reason or 'Error: the only tool is calculator with {"expression": "..."}.'


def _is_calculation(action):
    match action.payload:
        case ToolCall("calculator", {"expression": str(), **others}):
            return not others
    return False


def _call(protocol, expression):
    call = ToolCall("calculator", {"expression": expression})
    return protocol.render_turn(Action(TOOL, call), f"I need {expression}.")


class Expert:
    """Calculates step by step, with the results that it reads."""

    def __init__(self, env, task, protocol):
        self.steps, self.protocol, self.read = task.meta["steps"], protocol, []

    def act(self, observation):
        """Take the result and go on; what is read first is the problem."""
        self.read.append((re.findall(r"-?\d+(?:\.\d+)?", observation) or ["0"])[-1])
        if len(self.read) > len(self.steps):
            return self.protocol.render_turn(Action(ANSWER, self.read[-1]), "That is it.")
        results = {f"r{number}": result for number, result in enumerate(self.read)}
        return _call(self.protocol, self.steps[len(results) - 1].format(**results))
