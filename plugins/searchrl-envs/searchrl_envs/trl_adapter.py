"""The arguments of TRL's `GRPOTrainer` for an environment of SearchRL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from itertools import islice
from typing import Any

from searchrl_envs.outside import INSTRUCTION, Played

_HINTS = {"number": float, "integer": int, "boolean": bool, "array": list, "object": dict}


def grpo_arguments(
    settings: Mapping[str, Any], split: str = "train", num_tasks: int | None = None
) -> dict[str, Any]:
    """Its tasks, its tools and our reward, as `GRPOTrainer(model, **arguments)` takes them.

    `settings` are those of `searchrl.train`, such as `{"env": "regulations", "reward": "em"}`;
    `num_tasks` the first tasks of a split, by default all.
    """
    from datasets import Dataset

    played = Played(settings)
    rows = []
    for index, prompt in islice(played.prompts(split), num_tasks):
        told = {"role": "system", "content": INSTRUCTION}, {"role": "user", "content": prompt}
        rows.append({"prompt": list(told), "split": split, "index": index})
    methods = {tool["name"]: _make_method(tool) for tool in played.tools}
    kind = type("Environment", (_Environment,), methods)
    return {
        "train_dataset": Dataset.from_list(rows),
        "environment_factory": lambda: kind(settings),
        "reward_funcs": [searchrl_reward],
    }


def searchrl_reward(
    completions: Sequence[Any], environments: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Our reward of each episode. Its answer is a last message without a call.

    TRL shows that message to no method of an environment, so a `get_reward` could not score it.
    """
    for messages, environment in zip(completions, environments, strict=True):
        last = messages[-1]
        if last["role"] == "assistant" and not last.get("tool_calls"):
            environment._played.answer(last["content"] or "")
    return [environment._played.score().reward for environment in environments]


class _Environment:
    """TRL takes every public method but `reset` as a tool."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._played = Played(settings)

    def reset(self, split: str, index: int, **columns: Any) -> None:
        self._played.begin(split, index)


def _make_method(tool: Mapping[str, Any]) -> Callable[..., str]:
    """A method with the hints and the docstring from which TRL makes the tool's schema again."""

    def method(self: _Environment, **arguments: Any) -> str:
        return self._played.call(tool["name"], arguments)

    schema, method.__annotations__ = tool.get("parameters", {}), {"return": str}
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    lines = [tool.get("description") or tool["name"], "", "Args:"]
    for name, one in schema.get("properties", {}).items():
        hint = _HINTS.get(one.get("type"), str)
        default = Parameter.empty if name in schema.get("required", ()) else None
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        method.__annotations__[name] = hint
        lines.append(f"    {name}: {one.get('description', name)}")
    method.__name__, method.__doc__ = tool["name"], "\n".join(lines)
    method.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return method
