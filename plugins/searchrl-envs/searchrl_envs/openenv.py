"""`openenv:URL`: an environment behind a server of OpenEnv, with a session for each instance."""

import json
import weakref
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from searchrl import ConfigError, EnvironmentFailure
from searchrl.api_client import read_key
from searchrl.contracts import ANSWER, Action, Address, TagProtocol, Task, VariableName
from searchrl_envs.base import ForeignEnv, Reply, close_later, need


@lru_cache
def ask(url: str, key_env: str) -> tuple[dict[str, str], bool, tuple[dict[str, Any], ...]]:
    """Headers for a server, True if it has tools of MCP, and these; else `act` for its actions."""
    import httpx2

    need(f"openenv:{url}", "openenv")
    key = read_key(key_env) if key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx2.Client(base_url=url, headers=headers, timeout=30) as client:
            action = client.get("/schema").raise_for_status().json()["action"]
            fields = {name: one for name, one in action["properties"].items() if name != "metadata"}
            if fields and "tool_name" not in fields:
                about = client.get("/metadata").raise_for_status().json()["description"]
                said = f"{about}. {action.get('description', '')}".strip()
                schema = {"type": "object", **action, "properties": fields}
                return headers, False, ({"name": "act", "description": said, "parameters": schema},)
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            listed = client.post("/mcp", json=body).raise_for_status().json()["result"]["tools"]
        tools = [
            {
                "name": tool["name"],
                "description": tool.get("description") or "",
                "parameters": tool.get("inputSchema") or tool["input_schema"],  # OpenEnv has both
            }
            for tool in listed
        ]
        return headers, True, tuple(tools)
    except (httpx2.HTTPError, httpx2.InvalidURL, LookupError, TypeError, ValueError) as error:
        raise ConfigError(
            f"env openenv:{url}: nothing there answers as OpenEnv does ({error!r}); start the "
            "server, look at the address, and at env.key_env, the variable with the server's key"
        ) from error


def tell(observation: Mapping[str, Any]) -> str:
    """An observation in words: one field as it is, several as `name: value` lines."""
    match observation:
        case {"error": {"message": text}} | {"result": {"content": [{"text": text}]}}:
            return str(text)
    shown = {
        key: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        for key, one in observation.items()
        if key != "metadata" and one not in (None, "", [], {})
    }
    return "\n".join(shown.values() if len(shown) == 1 else map(": ".join, shown.items()))


class OpenEnv(ForeignEnv):
    """The environment of `--env openenv:URL`; its actions are the tool `act`, or its tools of MCP.

    Every task is a seed. `key_env` is the environment variable with the server's key, `reset` holds
    more arguments of its `reset`. After `timeout_s` a call, and its episode, has failed.
    """

    def __init__(
        self,
        *,
        protocol: TagProtocol,
        name: Address,
        retriever: object = None,
        key_env: VariableName = "",
        num_tasks: PositiveInt = 10_000,
        max_turns: PositiveInt = 10,
        timeout_s: Annotated[float, Field(gt=0)] = 30.0,
        reset: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(protocol, f"openenv:{name}", max_turns, num_tasks)
        self._limits = {"connect_timeout_s": timeout_s, "message_timeout_s": timeout_s}
        self._url, self._given = name, reset or {}
        self._headers, self._has_mcp, listed = ask(name, key_env)
        self._tools = {tool["name"]: tool["parameters"] for tool in listed}
        self._connect()

    @staticmethod
    def tools(*, name: str, key_env: str = "", **settings: Any) -> tuple[dict[str, Any], ...]:
        """The tools of the server."""
        return ask(name, key_env)[2]

    def _begin(self, split: str, index: int) -> tuple[Task, str]:
        place = {"seed": self.seed_of(split, index), "split": split, "index": index}
        prompt = tell(self._call("reset", **{**place, **self._given}).observation) or "Begin."
        task_id = f"{self.name}/{split}/{index}"
        return Task(task_id, split, index, prompt, env=self.name, meta=place), prompt

    def _play(self, action: Action) -> Reply:
        call = action.payload
        if action.kind == ANSWER and self._has_mcp:  # nothing else says that the policy is done
            return Reply(is_over=True)
        if action.kind == ANSWER or call.name not in self._tools:
            return Reply(f"There are the tools {', '.join(self._tools)}, and nothing else.")
        sent = {"type": "call_tool", "tool_name": call.name, "arguments": call.arguments}
        result = self._call("step", sent if self._has_mcp else call.arguments)
        if result is None:
            return Reply(f"These arguments do not fit {json.dumps(self._tools[call.name])}.")
        return Reply(tell(result.observation), float(result.reward or 0), bool(result.done))

    def close(self) -> None:
        """End the session."""
        self._leave()

    def _call(self, method: str, *args: Any, **more: Any) -> Any:
        """A method of the session, which is left if it fails; None if an action is not valid."""
        try:
            return getattr(self._session, method)(*args, **more)
        except Exception as error:
            if method == "step" and "VALIDATION_ERROR" in str(error):
                return None
            self._leave()
            self._connect()
            said = str(error) or f"no answer within {self._limits['message_timeout_s']:g} s"
            raise EnvironmentFailure(f"{self.name}: {said} (in {method})") from error

    def _connect(self) -> None:
        """Make a client, which connects at the next reset, and in no step."""
        from openenv.core import GenericEnvClient

        class Session(GenericEnvClient):  # type: ignore[misc]
            async def _step_async(self, action: Any, **more: Any) -> Any:
                if self._ws is None or self._ws.state.name != "OPEN":  # it would connect anew
                    raise ConnectionError("the server closed the session")
                return await super()._step_async(action, **more)

        made = Session(self._url, mode="simulation", headers=self._headers, **self._limits)
        self._session = made.sync()
        self._leave = weakref.finalize(self, close_later, self._session)
        self._leave.atexit = False
