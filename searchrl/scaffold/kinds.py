"""The kinds of plugin that `searchrl new` writes, each with what its example is about.

Owns the summary of each template and the commands that use the result. Caller: `layout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_TRAIN = "--model tiny --max-steps 3"


@dataclass(frozen=True, slots=True)
class Kind:
    """A template: what it is about, the `commands` that use the result, and what it registers.

    `hook` is the kind that it registers, where its own name is another one.
    """

    summary: str
    commands: tuple[str, ...]
    hook: str = ""


KINDS: Mapping[str, Kind] = {
    "env": Kind(
        "an environment, the capitals of invented countries",
        (
            "searchrl play {plugin}--env {name}",
            "searchrl eval {plugin}--env {name} --policy scripted",
            f'searchrl train {{plugin}}--env {{name}} --reward "0.2*format+em" {_TRAIN}',
        ),
    ),
    "tool_env": Kind(
        "an environment with a tool, the stock of an invented shop",
        (
            "searchrl play {plugin}--env {name}",
            "searchrl eval {plugin}--env {name} --policy scripted",
            f"searchrl train {{plugin}}--env {{name}} {_TRAIN}",
        ),
        hook="env",
    ),
    "reward": Kind(
        "a reward, was the answer read or only guessed",
        (
            "searchrl eval {plugin}--reward em+{name} --policy scripted",
            f"searchrl train {{plugin}}--reward format+em+0.1*{{name}} {_TRAIN}",
        ),
    ),
    "group_reward": Kind(
        "a reward of a group, do its rollouts look for different things",
        (
            "searchrl eval {plugin}--reward em+{name} --policy scripted",
            f"searchrl train {{plugin}}--reward format+em+0.1*{{name}} {_TRAIN}",
        ),
        hook="reward",
    ),
    "judge": Kind(
        "a judge of answers, numbers that are nearly right are partly right",
        (
            "searchrl eval {plugin}--reward judge --set judge={name} --policy scripted",
            f"searchrl train {{plugin}}--reward format+judge --set judge={{name}} {_TRAIN}",
        ),
    ),
    "protocol": Kind(
        "a tag protocol, every action is a call in JSON",
        (
            "searchrl play {plugin}--protocol {name}",
            "searchrl eval {plugin}--protocol {name} --policy scripted",
        ),
    ),
    "retriever": Kind(
        "a retriever, it compares pieces of words and so forgives typos",
        (
            "searchrl play {plugin}--retriever {name}",
            "searchrl eval {plugin}--retriever {name} --policy scripted",
        ),
    ),
    "tracker": Kind(
        "a tracker, every metric is a row of a CSV file",
        (f"searchrl train {{plugin}}--set log.trackers=[{{name}}] {_TRAIN}",),
    ),
    "alarm": Kind(
        "an alarm, episodes take more and more turns",
        (f"searchrl train {{plugin}}--alarm {{name}} {_TRAIN}",),
    ),
    "algorithm": Kind(
        "an algorithm, GRPO in which no lucky rollout counts too much",
        (f"searchrl train {{plugin}}--algorithm {{name}} {_TRAIN}",),
    ),
}
"""What can be written."""
