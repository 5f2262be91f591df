"""The environment `mcp:SERVER`: tasks of yours, to be solved with the tools of an MCP server."""

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
    """Answer a question of the file `questions` with the tools of an MCP server.

    `name` is its address, or the command that starts it, in which `{scratch}` is a new empty
    folder. Only the tools of `allow` may be called; without any, all. `timeout_s` is for a call,
    or for each step of a session's beginning. With `session` `episode`, one begins at the first
    call of each episode; in a `shared` one, episodes find what others left behind.
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
        if questions is None:
            raise ConfigError(
                f"env mcp:{name} needs tasks: --set env.questions=FILE, with rows {ROW}; "
                f"draft some with searchrl mcp tasks {shlex.quote(name)}"
            )
        super().__init__(protocol, f"mcp:{name}", max_turns, tasks=load_tasks(questions))
        need(self.name, "mcp")
        from searchrl_envs.mcp_session import Session, open_shared

        self._allow, self._is_shared = tuple(allow), session == "shared"
        self.signals = {"shared_session": float(self._is_shared)}
        self._session = (open_shared if self._is_shared else Session)(name, timeout_s)

    @staticmethod
    def tools(
        *, name: str, allow: Sequence[str] = (), timeout_s: float = 30.0, **others: Any
    ) -> list[dict[str, Any]]:
        """The tools that may be called, as the server describes them."""
        need(f"mcp:{name}", "mcp")
        from searchrl_envs.mcp_session import Session

        with closing(Session(name, timeout_s)) as session:
            listed = session.list_tools()
        for one in allow:
            if one not in listed:
                told = f"the server '{name}' has no tool {show_value(one)}"
                raise ConfigError(f"env.allow: {told}.{suggest(one, listed)}")
        return [listed[one] for one in allow or listed]

    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        self.close()
        task = replace(self._tasks[split][index], split=split, index=index, env=self.name)
        self._answers = task.answers
        return task, task.question

    def _play(self, action: Action) -> Reply:
        call = action.payload
        if action.kind == ANSWER:
            return Reply(reward=em(call, self._answers), is_over=True)
        known = self._allow or (call.name,)
        if call.name not in known:
            return Reply(f"error: there is no tool {call.name!r}; there are {', '.join(known)}")
        return Reply(self._session.call(call.name, call.arguments))

    def _end(self, reply: Reply) -> Reply:
        self.close()
        return reply

    def close(self) -> None:
        """End the session of the episode."""
        if not self._is_shared:
            self._session.close()
