"""The arguments of TRL's `GRPOTrainer` for an environment of SearchRL."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from itertools import islice
from typing import Any

from searchrl import ConfigError
from searchrl_envs.outside import INSTRUCTION, Episodes

_HINTS = {"number": float, "integer": int, "boolean": bool, "array": list, "object": dict}


def grpo_arguments(
    settings: Mapping[str, Any], split: str = "train", num_tasks: int | None = None
) -> dict[str, Any]:
    """Its first tasks, its tools and our reward, as `GRPOTrainer(model, **arguments)` takes them.

    `settings` are those of `searchrl.train`, such as `{"env": "regulations", "reward": "em"}`.
    """
    from datasets import Dataset

    episodes, rows = Episodes(settings), []
    for index, prompt in islice(episodes.prompts(split), num_tasks):
        told = {"role": "system", "content": INSTRUCTION}, {"role": "user", "content": prompt}
        rows.append({"prompt": list(told), "split": split, "index": index})
    methods = {tool["name"]: _make_method(tool) for tool in episodes.tools}
    if "reset" in methods:
        raise ConfigError("the environment has a tool named reset, which TRL calls as its own")
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
    ends = [messages[-1] for messages in completions]
    texts = [
        "" if end["role"] == "tool" or end.get("tool_calls") else end["content"] or ""
        for end in ends
    ]
    episodes = [environment._episodes for environment in environments]
    return [one.score(text).reward for one, text in zip(episodes, texts, strict=True)]


class _Environment:
    """TRL takes every public method but `reset` as a tool."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._episodes = Episodes(settings)

    def reset(self, split: str, index: int, **columns: Any) -> None:
        self._episodes.begin(split, index)


def _make_method(tool: Mapping[str, Any]) -> Callable[..., str]:
    """A method with the hints and the docstring from which TRL makes the tool's schema again."""

    def method(self: _Environment, **arguments: Any) -> str:
        return self._episodes.call(tool["name"], arguments)

    schema = tool.get("parameters", {})
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    lines, method.__annotations__ = [], {"return": str}
    for name, one in schema.get("properties", {}).items():
        hint = method.__annotations__[name] = _HINTS.get(str(one.get("type")), str)
        default = Parameter.empty if name in schema.get("required", ()) else None
        given = {"default": default, "annotation": hint}
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, **given))
        lines.append(f"    {name}: {one.get('description', name)}")
    method.__name__ = tool["name"]
    method.__doc__ = "\n".join([tool.get("description", tool["name"]), "", "Args:", *lines])
    method.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return method
