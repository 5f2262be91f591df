"""An environment of SearchRL as a task set of verifiers: `vf-eval searchrl-envs`.

The tools are an MCP server of each episode, which notes the calls; the reward plays them once more
and scores them. As a program, this is the server.
"""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool

from searchrl_envs.outside import INSTRUCTION, Played


class Calls(vf.State):
    """The calls of an episode."""

    calls: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012  # pydantic copies it


class Place(vf.TaskData):
    """The place of a task: an environment, a split, an index."""

    settings: dict[str, Any]
    split: str
    index: int

    def begin(self) -> Played:
        """Begin its episode."""
        played = Played(self.settings)
        played.begin(self.split, self.index)
        return played


class Tools(vf.Toolset[vf.ToolsetConfig, Calls]):
    """The tools of one episode."""

    TOOL_PREFIX = None

    async def setup_task(self, task: Place) -> None:
        """Begin the episode."""
        self._played = task.begin()

    def register(self, mcp: Any) -> None:
        """Answer in place of the server's own methods, which make schemas from code."""
        mcp.list_tools, mcp.call_tool = self._list, self._with_state(self._call)

    async def _list(self) -> list[Tool]:
        return [
            Tool(
                name=tool["name"],
                description=tool.get("description"),
                input_schema=tool.get("parameters", {"type": "object"}),
            )
            for tool in self._played.tools
        ]

    async def _call(self, name: str, arguments: dict[str, Any], *context: Any) -> CallToolResult:
        self.state.calls.append((name, arguments))
        said = self._played.call(name, arguments)
        return CallToolResult(content=[TextContent(type="text", text=said)])


class PlayedTask(vf.Task[Place, Calls]):
    """A task, its tools and its reward."""

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        """The server of its tools."""
        return [Tools(vf.ToolsetConfig())]

    @vf.reward
    async def searchrl(self, trace: vf.Trace[Place, Calls]) -> float:
        """Our reward; all of our scores are metrics."""
        played = self.data.begin()
        for name, arguments in trace.state.calls:
            played.call(name, arguments)
        played.answer(trace.last_reply)
        scored = played.score()
        if scored.reward is None:
            raise ValueError(scored.unscored)
        trace.record_metrics(scored.scores)
        return float(scored.reward)


class SearchRLConfig(vf.TasksetConfig):
    """The settings of an environment, those of `searchrl.train`, and the split."""

    settings: dict[str, Any] = {"env": "regulations"}  # noqa: RUF012  # pydantic copies it
    split: str = "test"


class SearchRLTaskset(vf.Taskset[PlayedTask, SearchRLConfig]):
    """The tasks of a split."""

    def load(self) -> Iterator[PlayedTask]:
        """The tasks in order."""
        place = {"settings": self.config.settings, "split": self.config.split}
        for index, prompt in Played(self.config.settings).prompts(self.config.split):
            data = Place(prompt=prompt, system_prompt=INSTRUCTION, index=index, **place)
            yield PlayedTask(data, self.config.task)


if __name__ == "__main__":
    Tools.run()
