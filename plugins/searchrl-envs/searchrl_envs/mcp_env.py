"""The environment `mcp:SERVER`: tasks of yours, to be solved with the tools of an MCP server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

from searchrl import ConfigError, show_value, suggest
from searchrl.contracts import ANSWER, Action, TagProtocol, Task
from searchrl.rewards import em
from searchrl_envs.base import ForeignEnv, Reply, need
from searchrl_envs.mcp_tasks import ROW, load_tasks


class McpEnv(ForeignEnv):
    """Answer a question with what the tools of an MCP server say.

    Args:
        name: the command that starts the server, in which `{scratch}` is a new empty folder; or
            its address.
        questions: a file of tasks; a tenth each is for validation and test.
        allow: the tools that may be called; without any, all.
        max_turns: model turns before the episode is truncated.
        timeout_s: seconds for a call, or for each step of a session's beginning.
        session: `episode` begins one at the first call of each episode; in a `shared` one, later
            episodes find what earlier ones left behind.
    """

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: str,
        retriever: Any = None,
        questions: str | None = None,
        allow: Sequence[str] = (),
        max_turns: int = 6,
        timeout_s: float = 30.0,
        session: Literal["episode", "shared"] = "episode",
    ) -> None:
        super().__init__(protocol, f"mcp:{name}", max_turns=max_turns)
        if questions is None:
            raise ConfigError(
                f"env {self.name} needs tasks: --set env.questions=FILE, with rows {ROW}; "
                f"draft some with searchrl mcp tasks {shlex.quote(name)}"
            )
        self._tasks = load_tasks(questions)
        self.splits = tuple(self._tasks)
        self._allow, self._is_shared = tuple(allow), session == "shared"
        need(self.name, "mcp", "mcp")
        from searchrl_envs.mcp_session import SHARED, Session

        own = Session(name, timeout_s)
        self._session = SHARED.setdefault((name, timeout_s), own) if self._is_shared else own

    @staticmethod
    def tools(
        *, name: str, allow: Sequence[str] = (), timeout_s: float = 30.0, **others: Any
    ) -> list[dict[str, Any]]:
        """The tools that may be called, as the server describes them."""
        need(f"mcp:{name}", "mcp", "mcp")
        from searchrl_envs.mcp_session import Session

        with closing(Session(name, timeout_s)) as session:
            listed = session.list_tools()
        for one in allow:
            if one not in listed:
                told = f"the server '{name}' has no tool {show_value(one)}"
                raise ConfigError(f"env.allow: {told}.{suggest(one, listed)}")
        return [listed[one] for one in allow or listed]

    def begin(self, split: str, index: int) -> tuple[Task, str]:
        """Put a question."""
        self.close()
        task = replace(self._tasks[split][index], split=split, index=index, env=self.name)
        return task, task.question

    def play(self, action: Action) -> Reply:
        """Make a call, or take the answer."""
        call = action.payload
        if action.kind == ANSWER and self.task:
            return Reply(reward=em(call, self.task.answers), is_over=True)
        known = self._allow or (call.name,)
        if call.name not in known:
            return Reply(f"error: there is no tool {call.name!r}; there are {', '.join(known)}")
        return Reply(self._session.call(call.name, call.arguments))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one raw model turn; the last one ends the session."""
        played = super().step(action)
        if not self._turns_left:
            self.close()
        return played

    def close(self) -> None:
        """End the session of the episode."""
        if not self._is_shared:
            self._session.close()
