"""An environment of SearchRL as a task set of verifiers: `vf-eval searchrl-envs`.

The tools are an MCP server of each episode, which notes the turns; the reward plays them once more
and scores them. As a program, this is the server.
"""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool

from searchrl_envs.outside import INSTRUCTION, Episodes


class _Turns(vf.State):
    turns: list[str] = []  # noqa: RUF012  # pydantic copies it


class _Row(vf.TaskData):
    settings: dict[str, Any]
    split: str
    index: int


class _Tools(vf.Toolset[vf.ToolsetConfig, _Turns]):
    TOOL_PREFIX = None

    async def setup_task(self, task: _Row) -> None:
        self._episodes = Episodes(task.settings)
        self._episodes.begin(task.split, task.index)

    def register(self, mcp: Any) -> None:
        # In place of the server's own methods, which make schemas from code.
        mcp.list_tools, mcp.call_tool = self._list, self._with_state(self._call)

    async def _list(self) -> list[Tool]:
        usual = {"parameters": {"type": "object"}}
        tools = [usual | tool for tool in self._episodes.tools]
        return [Tool.model_validate(one | {"inputSchema": one["parameters"]}) for one in tools]

    async def _call(self, name: str, arguments: dict[str, Any], *context: Any) -> CallToolResult:
        said = self._episodes.call(name, arguments)
        self.state.turns = self._episodes.turns
        return CallToolResult(content=[TextContent(type="text", text=said)])


class PlayedTask(vf.Task[_Row, _Turns]):
    """A task, its tools and its reward."""

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        """The server of its tools."""
        return [_Tools(vf.ToolsetConfig())]

    @vf.reward
    async def searchrl(self, trace: vf.Trace[_Row, _Turns]) -> float:
        """Our reward; all of our scores are metrics."""
        episodes = Episodes(self.data.settings)
        episodes.begin(self.data.split, self.data.index)
        episodes.turns = trace.state.turns
        scored = episodes.score(trace.last_reply)
        if scored.reward is None:
            raise ValueError(scored.unscored)
        trace.record_metrics(scored.scores)
        return float(scored.reward)


class _Config(vf.TasksetConfig):
    settings: dict[str, Any] = {"env": "regulations"}  # noqa: RUF012
    split: str = "test"


class SearchRLTaskset(vf.Taskset[PlayedTask, _Config]):
    """The tasks of `split`; `settings` are those of `searchrl.train`."""

    def load(self) -> Iterator[PlayedTask]:
        """The tasks in order."""
        place = {"settings": self.config.settings, "split": self.config.split}
        for index, prompt in Episodes(self.config.settings).prompts(self.config.split):
            data = _Row(prompt=prompt, system_prompt=INSTRUCTION, index=index, **place)
            yield PlayedTask(data, self.config.task)


if __name__ == "__main__":
    _Tools.run()
