"""The wrapper `agent`: an agent acts in an environment, and the policy writes what it asks for.

Owns the order of an episode: the agent is started, its requests become turns of the policy, its
tool calls and its answer become steps of the environment. It is made by `--agent COMMAND`.
"""

from __future__ import annotations

import atexit
import hmac
import json
import re
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import gymnasium
from pydantic import Field

from searchrl import ConfigError, EnvironmentFailure
from searchrl.contracts import (
    ACT,
    ANSWER,
    SEARCH,
    TOOL,
    Action,
    Command,
    Rendered,
    SampledTurn,
    Serving,
    ToolCall,
)
from searchrl_agents.agents import Agent, Ended, Running, Start, make_agent
from searchrl_agents.history import History
from searchrl_agents.keeper import END_S
from searchrl_agents.server import AgentServer
from searchrl_agents.session import Event, Session, read_turn
from searchrl_agents.talk import Refused, Reply

_WRAPPED = re.compile(r"\s*<(\w+)>(.*)</\1>\s*", re.DOTALL)
_MARGIN = 0.9
"""Share of a step's time limit after which we give up, to report our own error."""


class _Office:
    """The server of this process, its rollouts by key, and agents by command."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._agents: dict[tuple[Any, ...], Agent] = {}
        self._server: AgentServer | None = None
        atexit.register(self.close)

    def find(self, key: str) -> Session | None:
        """The rollout of a key, compared in constant time."""
        given = key.encode("utf-8", "replace")
        known = [*self._sessions.values()]
        return next((s for s in known if hmac.compare_digest(s.key.encode(), given)), None)

    def open(self, session: Session) -> str:
        """Register a session; return the base address for its agent."""
        with self._lock:
            if self._server is None:
                self._server = AgentServer(self.find)
                self._server.start()
            self._sessions[session.key] = session
            return f"{self._server.address}/v1"

    def end(self, session: Session) -> None:
        session.close()
        self._sessions.pop(session.key, None)

    def agent(self, command: str, env: tuple[str, ...]) -> Agent:
        """Return the agent of a command; a function is imported once."""
        with self._lock:
            if (command, env) not in self._agents:
                self._agents[command, env] = make_agent(command, env=env)
            return self._agents[command, env]

    def close(self) -> None:
        for agent in self._agents.values():
            agent.close()
        if self._server is not None:
            self._server.close()


_OFFICE = _Office()


class AgentEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets an agent act in `env`.

    Args:
        command: the agent: a command, or `file.py:function`.
        history: `append` goes on with the sampled tokens if a client leaves out the reasoning;
            `as_sent` begins a segment there.
        max_requests: most replies of the policy in one episode.
        env_names: further variables that its process inherits.

    Raises:
        ConfigError: there is no such command or function.
    """

    remedies: ClassVar[dict[str, str]] = {
        "edited": "Send earlier messages and replies as they were, and add new ones at the end.",
        "shortened": "Leave the history whole, or shorten it less often and by more.",
        "branch": "Let new messages follow the last reply, not an earlier one.",
        "repeated": "Ask once for each reply: n=1, and no retry of a request that was answered.",
        "tools": "Send the same tools and the same setting of thinking with each request.",
        "reasoning": "Send reasoning_content back with replies, or --set wrapper.history=append.",
    }
    """Advice for each reason why a request begins another segment."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        *,
        command: Command,
        history: Literal["append", "as_sent"] = "append",
        max_requests: Annotated[int, Field(ge=1)] = 64,
        env_names: tuple[str, ...] = (),
    ) -> None:
        super().__init__(env)
        try:
            self.get_wrapper_attr("protocol").render_turn(Action(ANSWER, "yes"))
        except (AttributeError, ValueError) as error:
            raise ConfigError(
                "an agent gives an answer, and this environment's protocol has none; choose an "
                f"environment of questions ({error})"
            ) from error
        self._agent = _OFFICE.agent(command, tuple(env_names))
        self._mode = history
        self._max_requests = max_requests
        self._serving: Serving | None = None
        self._running: Running | None = None

    def serve(self, serving: Serving | None) -> None:
        """See `searchrl.contracts.Serving`."""
        self._serving = serving

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin a task, start the agent, and return its first request.

        Raises:
            EnvironmentFailure: it sent no request.
        """
        serving = self._serving
        self._end("its episode was given up")
        self._serving = serving
        question, info = self.env.reset(seed=seed, options=options)
        if self._serving is None:
            return question, info  # a task is looked at, not played
        if not hasattr(self._serving.codec, "show"):
            raise ConfigError("an agent needs a policy with a chat template; scripts have none")
        self._session = Session(self._serving.temperature, self._max_requests)
        self._history = History(self._serving.codec, self._mode, self._serving.max_total_tokens)
        self._waiting: Event | None = None
        self._made: list[Reply] = []
        self._steps: list[tuple[float, dict[str, Any]]] = []
        self._last_text, self._is_over = "", False
        task = {"rollout_id": self._serving.rollout_id, "question": question}
        base = _OFFICE.open(self._session)
        running = self._agent.start(Start(base, self._session.key, json.dumps(task)))
        running.ended.add_done_callback(self._session.end)
        self._serving.over.add_done_callback(lambda _: running.stop("its episode was given up"))
        self._running = running
        said = self._go_on()
        if not isinstance(said, Rendered):
            raise EnvironmentFailure("the agent ended and never asked the policy for anything")
        return said, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Give the agent the policy's turn, and return its next request.

        Raises:
            EnvironmentFailure: it crashed, or was too slow.
        """
        if self._serving is None:
            return self.env.step(action)  # type: ignore[return-value]
        assert isinstance(action, SampledTurn) and self._waiting is not None
        self._reply(action)
        said = self._go_on()
        rewards = sum(reward for reward, _ in self._steps)
        infos, self._steps = [info for _, info in self._steps], []
        queries = [query for one in infos if "action" in one for query in one["action"].queries]
        info: dict[str, Any] = {
            "passages": tuple(p for one in infos for p in one.get("passages", ())),
            "ranks": tuple(rank for one in infos for rank in one.get("ranks", ())),
            "action": Action(SEARCH, tuple(queries)) if queries else Action(ACT, "reply"),
            "signals": {name: v for one in infos for name, v in one.get("signals", {}).items()},
        }
        if isinstance(said, Rendered):
            return said, rewards, False, False, info
        info["action"], info["answer"] = Action(ANSWER, said), said
        if self._session.rewarded is not None:
            info["signals"]["agent_reward"] = self._session.rewarded
        return "", rewards, True, False, info

    def close(self) -> None:
        """End the agent, if one is running."""
        self._end("the run is over")
        super().close()

    def _go_on(self) -> Rendered | str:
        """Return the policy's next prompt (`Rendered`), or the answer of an agent that ended."""
        assert self._serving is not None
        limit_s = (self._serving.timeout_s or 600.0) * _MARGIN
        until = time.monotonic() + limit_s
        try:
            while True:
                if self._waiting is not None and (asked := self._ask(self._waiting)) is not None:
                    return asked
                event = self._session.next(until - time.monotonic())
                if event is None:
                    ended = self._end(f"it asked for nothing in {limit_s:.0f} s")
                    raise _failure(ended, " (raise rollout.env_timeout_s)")
                if event.kind == "ended":
                    return self._conclude(event.future.result())
                if event.kind == "chat":
                    self._waiting, self._made = event, []
                    continue
                try:
                    event.future.set_result(self._call(*event.body))
                except Refused as error:
                    event.future.set_exception(error)
                until = time.monotonic() + limit_s
        except BaseException as error:
            self._end(f"{type(error).__name__}: {error}")
            raise

    def _ask(self, event: Event) -> Rendered | None:
        """Return the prompt of a request; None: it was refused."""
        assert self._serving is not None
        request = event.body
        if request.thinking is None:
            request = replace(request, thinking=self._serving.thinking)
        try:
            placed = self._history.place(request)
        except Refused as error:
            self._waiting = None
            event.future.set_exception(error)
            return None
        self._request = request
        text = self._serving.codec.decode(placed.ids)
        # Some templates begin the thought of a reply themselves.
        self._is_thinking = text.rstrip().endswith("<think>")
        ids, most = tuple(placed.ids), request.max_tokens
        return Rendered(text, ids, placed.segment, request.stops, most, placed.reason)

    def _reply(self, turn: SampledTurn) -> None:
        """Add a turn to the replies of the waiting request, and answer it once it has all."""
        assert self._serving is not None and self._waiting is not None
        event, request = self._waiting, self._request
        sampled = text = turn.text
        ends = [text.index(stop) for stop in request.stops if stop in text]
        if ends and not request.keeps_stop:
            text = text[: min(ends)]
        text = "<think>" * self._is_thinking + text
        reasoning, content, calls = read_turn(text, bool(request.tools), self._history.num_replies)
        decode = self._serving.codec.decode
        is_cut = turn.reason == "max_tokens"
        reply = Reply(
            id=f"chatcmpl-{self._session.key[:8]}-{self._history.num_replies}",
            content=content,
            reasoning=reasoning,
            calls=calls,
            finish_reason="length" if is_cut else "tool_calls" if calls else "stop",
            ids=turn.ids,
            logps=turn.logps,
            tokens=tuple(decode([token]) for token in turn.ids),
            num_prompt=self._history.num_tokens,
            text=sampled,
        )
        self._history.take(reply, ended_itself=turn.reason == "eos")
        self._made.append(reply)
        self._last_text = content or self._last_text
        if len(self._made) == request.count:
            self._waiting = None
            event.future.set_result(tuple(self._made))

    def _call(self, name: str, arguments: Any) -> str:
        """Step the environment with the turn that its protocol writes for a tool call."""
        protocol = self.env.get_wrapper_attr("protocol")
        if self._is_over:
            raise Refused("the task takes no more calls", 409, "task_over")
        try:
            turn = protocol.render_turn(Action(TOOL, ToolCall(name, arguments)))
        except ValueError:
            query = arguments.get("query") or arguments.get("q")
            if name != "search" or not isinstance(query, str):
                what = f"there is no tool {name!r}; this environment has search(query)"
                raise Refused(what, 404, "no_such_tool") from None
            turn = protocol.render_turn(Action(SEARCH, (query,)))
        observation = self._step(turn)
        found = _WRAPPED.fullmatch(observation)
        return (found[2] if found else observation).strip()

    def _step(self, turn: str) -> str:
        observation, reward, terminated, truncated, info = self.env.step(turn)
        self._is_over = terminated or truncated
        self._steps.append((float(reward), info))
        return str(observation)

    def _conclude(self, ended: Ended) -> str:
        """Step the environment with the answer of an agent that ended, and return it."""
        self._end("")
        if ended.error:
            raise _failure(ended)
        posted = self._session.posted
        answer = posted if posted is not None else ended.last_line or self._last_text
        protocol = self.env.get_wrapper_attr("protocol")
        answer = protocol.final_answer([answer]) or answer  # in the tags that the policy knows
        if not self._is_over and self._history.num_replies:
            self._step(protocol.render_turn(Action(ANSWER, answer)))
        return answer

    def _end(self, why: str) -> Ended:
        running, self._running = self._running, None
        if running is None:
            return Ended(error=why)
        self._serving = None  # until somebody plays again
        _OFFICE.end(self._session)
        with suppress(TimeoutError):
            return running.stop(why).result(END_S)
        running.finish(Ended(error=f"it could not be ended within {END_S:g} s"))
        return running.ended.result()


def _failure(ended: Ended, remedy: str = "") -> EnvironmentFailure:
    """The error of an agent without an answer, with the end of its output."""
    output = f"\n{ended.output}" * bool(ended.output.strip())
    return EnvironmentFailure(f"the agent failed: {ended.error}{remedy}{output}")
