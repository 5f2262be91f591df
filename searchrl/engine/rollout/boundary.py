"""The boundary of an episode: calls into environments and scripts, and whose fault a failure is.

Everything that foreign code hands back (prompt, task, observation, reward, action, passages,
signals) is checked here, and relied on afterwards.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium

from searchrl.contracts import Context, Expert, Room, TokenBudget, find_passages_problem
from searchrl.contracts.playing import ExpertFactory
from searchrl.contracts.problems import find_action_problem, find_ranks_problem, find_task_problem
from searchrl.contracts.serving import Rendered, Serving
from searchrl.core.episode import (
    Action,
    EpisodeTurn,
    Failure,
    FailureKind,
    Passage,
    Task,
    ToolCall,
    is_finite_number,
)
from searchrl.engine.rollout.world import TaskWorld
from searchrl.envs.foreign import TextAdapter
from searchrl.errors import (
    BudgetSpent,
    EndpointFailure,
    EnvironmentFailure,
    GenerationFailure,
    ProtocolFailure,
    RetrieverFailure,
    show_value,
)
from searchrl.plugins.registry import describe_error
from searchrl.tool_calls import DeadlineExceeded
from searchrl.tracing import TRACER, of_text
from searchrl.trust.secrets import redact


class Begun(NamedTuple):
    """An episode that has begun. `cut_reward` is that of a turn that a limit cut."""

    prompt: Any
    task: Task
    expert: Expert | None = None
    cut_reward: float = 0.0
    signals: Mapping[str, float] = {}
    env_return: float = 0.0


class Stepped(NamedTuple):
    """Outcome of a turn in an environment. `action` None: ask the protocol."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    passages: tuple[Passage, ...]
    signals: Mapping[str, float]
    action: Action | None
    ranks: tuple[Mapping[str, int | None], ...]
    answer: str | None = None
    """The answer as it read it; None: ask the protocol."""
    context: Context | None = None
    """Text that the policy reads in place of all before; None: it goes on."""


def begin_episode(
    env: gymnasium.Env[Any, Any],
    world: TaskWorld,
    options: Mapping[str, Any],
    *,
    seed: int,
    budget: TokenBudget,
    serving: Serving | None = None,
    script: ExpertFactory | None = None,
    turns: Sequence[EpisodeTurn] = (),
) -> Begun:
    """Reset an environment of the world, and make its scripted policy if there is one.

    `turns` are played again; EnvironmentFailure if the environment replies in other words.
    """
    if hasattr(env.unwrapped, "budget"):
        env.unwrapped.budget = budget
    if world.is_served:
        env.serve(serving)  # type: ignore[attr-defined]
    prompt, info = env.reset(seed=seed, options=dict(options))
    _ensure_type(prompt, Rendered if serving else str, "reset", "prompt")
    task = info.get("task")
    if task is None:
        task = anonymous_task(world.name, options, getattr(prompt, "text", prompt))
    elif problem := find_task_problem(task):
        raise EnvironmentFailure(f"reset() put into info['task'] {problem}")
    inner = env.unwrapped
    cut_reward = inner.invalid_reward if isinstance(inner, TextAdapter) else 0.0
    begun = _play_again(env, turns, budget, Begun(prompt, task, cut_reward=cut_reward))
    if script is None:
        return begun
    try:
        return begun._replace(expert=script(env.unwrapped, task, world.protocol))
    except ProtocolFailure:
        raise
    except (Exception, SystemExit) as error:
        raise GenerationFailure(f"it could not be made: {describe_error(error)}") from error


def _play_again(
    env: gymnasium.Env[Any, Any], turns: Sequence[EpisodeTurn], budget: TokenBudget, begun: Begun
) -> Begun:
    signals: dict[str, float] = {}
    env_return = 0.0
    for number, turn in enumerate(turns, 1):
        stepped = step_env(env, turn.text)
        said = budget.fit(stepped.observation)
        if stepped.terminated or stepped.truncated or said != turn.observation:
            was, now = show_value(turn.observation), show_value(said)
            raise EnvironmentFailure(
                f"turn {number} was played again, and the reply was {now} in place of {was}: where "
                "rollouts branch, an episode must be a function of its task, its seed and its turns"
            )
        signals |= stepped.signals
        env_return += stepped.reward
    return begun._replace(signals=signals, env_return=env_return)


def step_env(
    env: gymnasium.Env[Any, Any], action: Any, observes: type = str, room: Room | None = None
) -> Stepped:
    """Step an environment and check everything that it returns; `observes` is not for the last.

    `room` is for a wrapper that compacts.
    """
    if room is not None:
        env.measure(room)  # type: ignore[attr-defined]
    with TRACER.start_as_current_span("execute_tool") as span:
        observation, reward, terminated, truncated, info = env.step(action)
        if isinstance(taken := info.get("action"), Action):
            name = taken.payload.name if isinstance(taken.payload, ToolCall) else taken.kind
            span.update_name(f"execute_tool {name}")
            span.set_attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name})
        span.set_attributes(of_text("gen_ai.tool.call.result", observation))
    _ensure_type(observation, str if terminated or truncated else observes, "step", "observation")
    action, passages = info.get("action"), info.get("passages", ())
    if action is not None and (problem := find_action_problem(action)):
        raise EnvironmentFailure(f"step() put into info['action'] {problem}")
    if problem := find_passages_problem(passages):
        raise EnvironmentFailure(f"step() put into info['passages'] {problem}")
    ranks = info.get("ranks", ())
    if problem := find_ranks_problem(ranks):
        raise EnvironmentFailure(f"step() put into info['ranks'] {problem}")
    signals = {}
    for name, value in info.get("signals", {}).items():
        if not isinstance(name, str):
            what = f"step() named a signal {name!r} in info['signals']; expected text"
            raise EnvironmentFailure(what)
        signals[name] = _finite(value, f"info['signals'][{name!r}]")
    return Stepped(
        observation,
        _finite(reward, "the reward"),
        bool(terminated),
        bool(truncated),
        tuple(passages),
        signals,
        action,
        tuple(ranks),
        info.get("answer"),
        _context_of(info),
    )


def anonymous_task(env: str, options: Mapping[str, Any], prompt: str) -> Task:
    """The task record of an env that does not describe its tasks."""
    split, index = options["split"], options.get("index", -1)
    return Task(id=f"{env}/{split}/{index}", split=split, index=index, question=prompt, env=env)


def classify(error: BaseException, world: TaskWorld, player: str) -> Failure:
    """Say who failed: `player` is who would have written the turn, for a `GenerationFailure`."""
    env, retriever, protocol = (world.who[kind] for kind in ("env", "retriever", "protocol"))
    cause = error.__cause__ if isinstance(error, RetrieverFailure) else None
    if isinstance(cause, DeadlineExceeded):
        error = cause  # it waited for its turn behind a search that hangs
    elif isinstance(cause, BudgetSpent):
        error, player = cause, retriever
    detail = redact("".join(traceback.format_exception(error)))
    match error:
        case DeadlineExceeded():
            # Our own stack is of no use; the place where it hangs is.
            # Another name is that of a call which the environment made itself.
            owner = error.owner if error.owner in (retriever, protocol) else env
            kind, detail = FailureKind.TIMEOUT, error.where
        case RetrieverFailure():
            kind, owner = FailureKind.RETRIEVER, retriever
        case ProtocolFailure():
            kind, owner = FailureKind.PROTOCOL, protocol
        case BudgetSpent():
            kind, owner = FailureKind.BUDGET, player
        case GenerationFailure() | EndpointFailure():
            kind, owner = FailureKind.GENERATION, player
        case _:
            kind, owner = FailureKind.ENVIRONMENT, env
    return Failure(kind, owner, redact(describe_error(error)), detail)


def _ensure_type(value: object, expected: type, call: str, what: str) -> None:
    if not isinstance(value, expected):
        wanted = "text" if expected is str else expected.__name__
        raise EnvironmentFailure(
            f"{call}() returned {type(value).__name__} as its {what}; expected {wanted}"
        )


def _context_of(info: Mapping[str, Any]) -> Context | None:
    context = info.get("context")
    if context is None:
        return None
    if not isinstance(context, Context):
        what = f"step() put {show_value(context)} into info['context']; expected a Context"
        raise EnvironmentFailure(what)
    kept = context.kept
    is_kept = isinstance(kept, tuple) and all(
        isinstance(one, int | str) and not isinstance(one, bool) for one in kept
    )
    for name, is_sound, wanted in (
        ("prompt", isinstance(context.prompt, str), "text"),
        ("kept", is_kept, "a tuple of numbers of turns and of texts"),
        ("reason", isinstance(context.reason, str) and context.reason, "a word"),
    ):
        if not is_sound:
            have = show_value(getattr(context, name))
            what = f"step() put {have} into info['context'] as its {name}; expected {wanted}"
            raise EnvironmentFailure(what)
    return context


def _finite(value: Any, what: str) -> float:
    if not is_finite_number(value):
        raise EnvironmentFailure(f"step() returned {value!r} as {what}; expected a finite number")
    return float(value)
