"""Task sets of the library verifiers (0.4) as environments: their tasks, tools and rewards."""

import asyncio
import json
from functools import lru_cache
from inspect import signature
from itertools import islice
from typing import Any

from searchrl import ConfigError
from searchrl.contracts import ANSWER, TOOL, Action, TagProtocol, Task
from searchrl_envs.base import ForeignEnv, Reply


class VerifiersEnv(ForeignEnv):
    """The tasks of an installed task set, the module `name`, with its own settings in `config`.

    The last turn is scored, be it an answer or the last that `max_turns` allow. `num_tasks` are the
    first tasks of the set, of both splits together.
    """

    sample = Action(ANSWER, "4")

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: Any = None,
        config: dict[str, Any] | None = None,
        max_turns: int = 10,
        num_tasks: int = 10_000,
    ) -> None:
        self._taskset, tasks, tools = _load(name, json.dumps(config or {}), num_tasks)
        super().__init__(protocol, f"verifiers:{name}", max_turns, tasks=tasks)
        if bool(tools) != (protocol.name == "tool-call"):
            which = ("tools", "tool-call") if tools else ("no tools", "think-answer")
            raise ConfigError("env {} has {}; use --protocol {}".format(self.name, *which))
        self._runner = asyncio.Runner()

    @staticmethod
    def tools(
        *, name: str, config: dict[str, Any] | None = None, num_tasks: int = 10_000, **others: Any
    ) -> list[dict[str, Any]]:
        """The tools of its tool sets, with the names that verifiers shows to a model."""
        return _load(name, json.dumps(config or {}), num_tasks)[2]

    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        from verifiers.v1.state import state_cls

        self._current = current = self._tasks[split][index]
        self._state = state_cls(type(current))()
        self._tools = self._runner.run(_serve(self._taskset, self._state, current.data))
        texts = {"system": current.data.system_prompt, "user": current.data.prompt}
        self._messages = [{"role": role, "content": text} for role, text in texts.items() if text]
        gold = current.data.model_dump().get("answer")
        answers = () if gold is None else (str(gold),)
        name = f"{self.name}/{current.data.idx}"
        task = Task(name, split, index, current.data.prompt, answers, env=self.name)
        return task, "\n\n".join(message["content"] for message in self._messages)

    def _play(self, action: Action) -> Reply:
        turn: dict[str, Any] = {"role": "assistant", "content": str(action.payload or "")}
        reply = {"role": "user", "content": action.reason}
        if action.kind == TOOL:
            call, key = action.payload, str(len(self._messages))
            made = {"id": key, "name": call.name, "arguments": json.dumps({**call.arguments})}
            turn = {"role": "assistant", "tool_calls": [made]}
            said = self._runner.run(self._call(call.name, dict(call.arguments)))
            reply = {"role": "tool", "tool_call_id": key, "content": said}
        self._messages.append(turn)
        if action.kind == ANSWER:
            return Reply(is_over=True)
        self._messages.append(reply)
        return Reply(reply["content"])

    _refuse = _play

    def _end(self, reply: Reply) -> Reply:
        trace = self._runner.run(self._score())
        scores = {name: reward.score for name, reward in trace.rewards.items()}
        return reply._replace(reward=trace.reward, signals=trace.metrics | scores)

    def close(self) -> None:
        """Close the event loop of the tools."""
        self._runner.close()

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            server, tool = self._tools[name]
            result = await server.call_tool(tool.name, arguments)
        except (KeyError, ToolError) as error:
            return f"{name} failed: {error}. The tools are {', '.join(self._tools)}."
        return "\n".join(part.text for part in result.content if part.type == "text")

    async def _score(self) -> Any:
        import verifiers.v1 as vf

        task = vf.TraceTask(type=type(self._current).__name__, data=self._current.data)
        agent = vf.AgentInfo(config=vf.AgentConfig())
        trace = vf.Trace(task=task, agent=agent, state=self._state)
        for place, said in enumerate(self._messages):
            parent = place - 1 if place else None
            node = {"message": said, "sampled": said["role"] == "assistant", "parent": parent}
            trace.nodes.append(vf.MessageNode.model_validate(node))
        await self._current.score(trace)
        return trace


@lru_cache
def _load(name: str, config: str, num_tasks: int) -> tuple[Any, list[Any], list[dict[str, Any]]]:
    """A task set, its first tasks, and its tools; ConfigError if it cannot be played."""
    try:
        from verifiers.v1.utils.loaders import load_taskset, taskset_config_type

        taskset = load_taskset(taskset_config_type(name)(**json.loads(config), id=name))
        tasks = list(islice(taskset, num_tasks))
        tools = [
            {"name": shown, "description": tool.description or "", "parameters": tool.input_schema}
            for shown, (_, tool) in asyncio.run(_serve(taskset)).items()
        ]
    except Exception as error:  # the module's own code can raise anything
        raise ConfigError(
            f"env verifiers:{name}: not loaded: {type(error).__name__}: {error}. "
            "How the library is installed: docs/how-to/from-verifiers.md"
        ) from error
    if problem := _find_problem(name, tasks):
        raise ConfigError(f"env verifiers:{name} {problem}, which cannot be played here")
    return taskset, tasks, tools


async def _serve(taskset: Any, state: Any = None, data: Any = None) -> dict[str, Any]:
    """New tool sets, as a server in this process and a tool by name; `data` begins an episode."""
    from mcp.server import MCPServer

    tools: dict[str, Any] = {}
    of_task = taskset.task_type().toolsets(taskset.config.task)
    for toolset in (*taskset.toolsets(taskset.config), *of_task):
        toolset._with_state = lambda function: function  # the state is here, behind no channel
        if data is not None:
            toolset._inert_state = state
            await toolset.setup()
            await toolset.setup_task(data)
        toolset.register(server := MCPServer("tools"))
        prefix = f"{toolset.server_name}_" if toolset.server_name else ""
        tools |= {prefix + one.name: (server, one) for one in await server.list_tools()}
    return tools


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
