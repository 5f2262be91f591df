"""From a task's reward and metrics to the scorer of its episodes.

Owns which components a task has and who makes them, and whether its protocol searches; what a score
is, is `rewards.scorer`'s matter. Wrong names and expressions are found before anything starts.
"""

from __future__ import annotations

import functools
import inspect

from searchrl.config import RunConfig
from searchrl.config.sections import TaskConfig
from searchrl.contracts import TagProtocol
from searchrl.core.episode import SEARCH
from searchrl.errors import ConfigError, ExpressionError, ProtocolFailure
from searchrl.plugins import Entry, Registry
from searchrl.plugins.parts import Judges, make_component
from searchrl.rewards.components import SIGNAL, make_signal
from searchrl.rewards.expression import RewardSchedule, UnknownComponentError
from searchrl.rewards.scorer import Scorer

SEARCH_METRICS = ("searched", "searches", "support_recall", "all_gold")
"""Components that are no metric of a task whose protocol has no search."""


def build_scorer(
    config: TaskConfig,
    run: RunConfig,
    registry: Registry,
    protocol: TagProtocol,
    judges: Judges,
) -> Scorer:
    """The scorer of a task.

    Raises:
        UnknownNameError, ExpressionError: whatever is wrong with a name or an expression.
    """
    schedule = _parse_reward(config, registry, registry.get("env", config.env.name))
    # Without a search, metrics of searches mean nothing.
    without = () if can_open(protocol, SEARCH) else SEARCH_METRICS
    metrics = [name for name in config.metrics if name not in without]
    names = dict.fromkeys([*schedule.names, *metrics])
    signals = {name: make_signal(name) for name in metrics if name.startswith(SIGNAL)}
    entries = {name: registry.get("reward", name) for name in names if name not in signals}
    judge = functools.partial(judges.get, config.judge.name, config.judge.settings)
    return Scorer(
        {name: make_component(entry, judge) for name, entry in entries.items()} | signals,
        schedule,
        group_names=[name for name, entry in entries.items() if entry.is_of_group],
        metrics=metrics,
        timeout_s=run.rollout.reward_timeout_s,
        owners={name: str(entry.owner) for name, entry in entries.items()},
        alone=[name for name, entry in entries.items() if not entry.is_concurrent],
    )


def can_open(protocol: TagProtocol, kind: str) -> bool:
    """Whether a turn of a protocol can be committed to an action of `kind`."""
    try:
        protocol.opening(kind)
    except ValueError:
        return False
    except ProtocolFailure:  # reported by the episode that needs it
        return True
    return True


def _parse_reward(config: TaskConfig, registry: Registry, env: Entry) -> RewardSchedule:
    # Who wrote it: nobody looks for a mistake of the plugin on the command line.
    is_own = config.reward == env.options.get("reward")
    source = f"the default reward of {env}: " if is_own else ""
    try:
        return RewardSchedule.parse(config.reward, registry.spellings("reward"))
    except UnknownComponentError as error:
        absence = registry.explain_absence("reward", error.component)
        raise UnknownComponentError(f"{source}{error}{absence}", error.component) from error
    except ExpressionError as error:
        raise type(error)(f"{source}{error}") from error


def ensure_is_read(config: TaskConfig, env: Entry, protocol: TagProtocol) -> None:
    """Refuse a retriever that somebody chose where nothing asks it.

    So says a factory with `retriever=None`, if the protocol has no searches either.
    """
    parameter = inspect.signature(env.load()).parameters.get("retriever")
    is_optional = parameter is not None and parameter.default is None
    if config.retriever.name == env.retriever or not is_optional or can_open(protocol, SEARCH):
        return
    raise ConfigError(
        f"retriever '{config.retriever.name}': env '{config.env.name}' needs none, and protocol "
        f"'{config.protocol.name}' has no searches, so nothing would ask it; leave out --retriever"
    )
