"""Task sets of the library verifiers (0.4) as environments: their tasks, tools and rewards."""

import asyncio
import json
from functools import lru_cache
from importlib.util import find_spec
from inspect import signature
from itertools import islice
from typing import Any

from searchrl import ConfigError
from searchrl.contracts import ANSWER, SEARCH, Action, RetrieverFactory, TagProtocol, Task, ToolCall
from searchrl_envs.base import ForeignEnv, Reply

INSTALL = "echo 'openai>=3.50' | uv pip install --override - verifiers==0.4.0"
"""Its own rules want openai 2, with which SearchRL does not work."""


class VerifiersEnv(ForeignEnv):
    """The environment of `--env verifiers:MODULE`. Every fifth task is a test task.

    Args:
        name: the module of an installed task set.
        config: the settings of the task set.
        max_turns: model turns before the episode is over, and scored as it is.
        num_tasks: the first tasks of the set, of both splits together.

    `ConfigError`: there is no such task set, or it needs what SearchRL does not have.
    """

    splits = ("train", "test")

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: RetrieverFactory | None = None,
        config: dict[str, Any] | None = None,
        max_turns: int = 10,
        num_tasks: int = 10_000,
    ) -> None:
        super().__init__(protocol, f"verifiers:{name}", max_turns=max_turns)
        self._taskset, tasks, tools = _load(name, json.dumps(config or {}), num_tasks)
        if problem := _find_problem(name, tasks):
            raise ConfigError(f"env {self.name} {problem}, which cannot be played here")
        if bool(tools) != (protocol.name == "tool-call"):
            which = ("tools", "tool-call") if tools else ("no tools", "think-answer")
            raise ConfigError("env {} has {}; use --protocol {}".format(self.name, *which))
        self._tasks = {
            "train": [task for place, task in enumerate(tasks) if place % 5 != 4],
            "test": tasks[4::5],
        }
        self._runner = asyncio.Runner()

    @staticmethod
    def tools(
        *, name: str, config: dict[str, Any] | None = None, num_tasks: int = 10_000, **others: Any
    ) -> list[dict[str, Any]]:
        """The tools of its tool sets, with the names that verifiers shows to a model."""
        return _load(name, json.dumps(config or {}), num_tasks)[2]

    def num_tasks(self, split: str) -> int:
        """The number of tasks of a split."""
        return super().num_tasks(split) and len(self._tasks[split])

    def begin(self, split: str, index: int) -> tuple[Task, str]:
        """Begin a task, with new tool sets and a new state."""
        from verifiers.v1.state import state_cls

        self._now = now = self._tasks[split][index]
        self._state = state_cls(type(now))()
        self._runner.run(self._open_tools())
        texts = {"system": now.data.system_prompt, "user": now.data.prompt_text}
        self._said = [{"role": role, "content": text} for role, text in texts.items() if text]
        gold = now.data.model_dump().get("answer")
        answers = () if gold is None else (str(gold),)
        name, question = f"{self.name}/{now.data.idx}", now.data.prompt_text
        task = Task(name, split, index, question, answers, env=self.name)
        return task, "\n\n".join(message["content"] for message in self._said)

    def play(self, action: Action) -> Reply:
        """Call a tool, or take the answer; the last turn is scored."""
        told, is_answer = "", action.kind == ANSWER
        if is_answer:
            self._said.append({"role": "assistant", "content": action.payload})
        else:
            is_search = action.kind == SEARCH  # a tool of this name
            call = ToolCall(SEARCH, {"query": action.queries[0]}) if is_search else action.payload
            told = self._runner.run(self._call(call.name, dict(call.arguments)))
            number, arguments = str(len(self._said)), json.dumps(dict(call.arguments))
            made = {"id": number, "name": call.name, "arguments": arguments}
            self._said.append({"role": "assistant", "tool_calls": [made]})
            self._said.append({"role": "tool", "tool_call_id": number, "content": told})
        if not is_answer and self._turns_left > 1:
            return Reply(told)
        trace = self._runner.run(self._score())
        scores = {name: reward.score for name, reward in trace.rewards.items()}
        return Reply(told, trace.reward, is_answer, trace.metrics | scores)

    def close(self) -> None:
        """Close the event loop of the tools."""
        self._runner.close()

    async def _open_tools(self) -> None:
        self._tools: dict[str, Any] = {}
        for toolset in _make_toolsets(self._taskset):
            toolset._inert_state = self._state
            await toolset.setup()
            await toolset.setup_task(self._now.data)
            self._tools |= await _serve(toolset)

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        from mcp.server.mcpserver.exceptions import ToolError

        if name not in self._tools:
            return f"There is no tool {name!r}; there are {', '.join(self._tools)}."
        server, tool = self._tools[name]
        try:
            result = await server.call_tool(tool.name, arguments)
        except ToolError as error:
            return str(error)
        return "\n".join(part.text for part in result.content if part.type == "text")

    async def _score(self) -> Any:
        import verifiers.v1 as vf

        nodes = [
            vf.MessageNode(message=one, sampled=one["role"] == "assistant", parent=place - 1)
            for place, one in enumerate(self._said)
        ]
        nodes[0].parent = None
        trace = vf.Trace(
            task=vf.TraceTask(type=type(self._now).__name__, data=self._now.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            state=self._state,
            nodes=nodes,
        )
        await self._now.score(trace)
        return trace


@lru_cache
def _load(name: str, config: str, num_tasks: int) -> tuple[Any, list[Any], list[dict[str, Any]]]:
    """A task set, its first tasks, and its tools."""
    if find_spec("verifiers") is None:
        raise ConfigError(
            f"env verifiers:{name} needs the library verifiers; install it: {INSTALL}"
        )
    from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

    try:
        taskset = load_taskset(taskset_config_type(name)(**json.loads(config), id=name))
        tools = [
            {"name": shown, "description": tool.description or "", "parameters": tool.input_schema}
            for toolset in _make_toolsets(taskset)
            for shown, (_, tool) in asyncio.run(_serve(toolset)).items()
        ]
        return taskset, list(islice(taskset, num_tasks)), tools
    except Exception as error:  # the module's own code can raise anything
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"env verifiers:{name}: verifiers cannot load it: {why}") from error


def _make_toolsets(taskset: Any) -> list[Any]:
    """New tool sets: those that tasks share, and those of a task."""
    of_task = taskset.task_type().toolsets(taskset.config.task)
    return [*taskset.toolsets(taskset.config), *of_task]


async def _serve(toolset: Any) -> dict[str, Any]:
    """The tools of a tool set by their names for the model, with a server in this process."""
    from mcp.server import MCPServer

    server, prefix = MCPServer("tools"), toolset.server_name
    toolset._with_state = lambda function: function  # its state is here, behind no channel
    toolset.register(server)
    tools = await server.list_tools()
    return {f"{prefix}_{one.name}" if prefix else one.name: (server, one) for one in tools}


def _find_problem(name: str, tasks: list[Any]) -> str:
    """The reason why tasks cannot be played here; empty if there is none."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.decorators import discover_decorated

    if len(tasks) < 5:
        return f"has {len(tasks)} tasks, and no fifth one for tests"
    if vf.environment_class(name) is not vf.SingleAgentEnv:
        return f"has a loop of its own, {vf.environment_class(name).__name__}"
    task, kind = tasks[0], type(tasks[0])
    if task.NEEDS_CONTAINER or task.data.image:
        return "needs a container"
    if task.hooks("stop") or discover_decorated(task, "intercept"):
        return "stops or changes turns by @stop or @intercept"
    if not all(isinstance(one.data.prompt, str) for one in tasks):
        return "has prompts that are no text"
    own = [one for one in (kind.setup, kind.finalize) if one.__module__ != vf.Task.__module__]
    for hook in (*own, *task.hooks("reward"), *task.hooks("metric")):
        if (given := signature(hook).parameters.get("runtime")) and given.default is given.empty:
            return f"has {hook.__name__}(), which needs a runtime"
    return ""
