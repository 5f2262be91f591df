"""A wrapper that turns every fault of a protocol plugin into a `ProtocolFailure`.

Owns the boundary around a protocol plugin. The driver, environments and scripts all call the
protocol. If it raises, or returns a wrong value, the failure names the protocol, and not the
environment that called it. Parses and renders nothing itself. The task world wraps
every protocol in one; the rollout driver classifies the failures.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from searchrl.contracts import TagProtocol, TokenBudget, find_action_problem
from searchrl.core.episode import Action, Passage
from searchrl.errors import PluginError, ProtocolFailure


class GuardedProtocol:
    """A protocol (`contracts.TagProtocol`) that calls another and checks what comes back.

    Args:
        protocol: the plugin's own.
        owner: who is named when it fails to be a protocol at all.
        has_instruction: False empties the instruction, for models that were taught by examples.

    Raises:
        PluginError: if it has no name, instruction or stop strings.
    """

    def __init__(self, protocol: TagProtocol, owner: str, *, has_instruction: bool = True) -> None:
        self._protocol = protocol
        for attribute in ("name", "instruction"):
            if not isinstance(getattr(protocol, attribute, None), str):
                raise PluginError(f"{owner}: the protocol needs a text as its '{attribute}'")
        stops = getattr(protocol, "stops", None)
        if not isinstance(stops, tuple | list) or not all(
            isinstance(stop, str) and stop for stop in stops
        ):
            raise PluginError(f"{owner}: 'stops' must be a tuple of texts, got {stops!r}")
        self.name = protocol.name
        self.instruction = protocol.instruction if has_instruction else ""
        self.stops = tuple(stops)

    def __getattr__(self, attribute: str) -> Any:
        # What only an environment that knows this protocol asks for (its tags, say).
        if attribute == "_protocol":  # not set yet: being copied or unpickled
            raise AttributeError(attribute)
        return getattr(self._protocol, attribute)

    def parse(self, text: str) -> Action:
        """See `TagProtocol.parse`."""
        action: Action = self._call(find_action_problem, "parse", text)
        return action

    def final_answer(self, turns: Sequence[str]) -> str | None:
        """See `TagProtocol.final_answer`."""
        answer: str | None = self._call(_find_answer_problem, "final_answer", turns)
        return answer

    def format_score(self, turns: Sequence[str]) -> float:
        """See `TagProtocol.format_score`."""
        return float(self._call(_find_score_problem, "format_score", turns))

    def render_observation(
        self, passages: Sequence[Passage], budget: TokenBudget | None = None
    ) -> str:
        """See `TagProtocol.render_observation`."""
        return self._text("render_observation", passages, budget)

    def render_notice(self, text: str, budget: TokenBudget | None = None) -> str:
        """See `TagProtocol.render_notice`."""
        return self._text("render_notice", text, budget)

    def render_turn(self, action: Action, thought: str = "") -> str:
        """See `TagProtocol.render_turn`; a ValueError says that it writes no such action."""
        return self._text("render_turn", action, thought, through=ValueError)

    def opening(self, kind: str) -> str:
        """See `TagProtocol.opening`; a ValueError says that it has no such action."""
        return self._text("opening", kind, through=ValueError)

    def neutralise(self, text: str) -> str:
        """See `TagProtocol.neutralise`."""
        return self._text("neutralise", text)

    def _text(self, method: str, *args: Any, through: type[Exception] | tuple[()] = ()) -> str:
        text: str = self._call(_find_text_problem, method, *args, through=through)
        return text

    def _call(
        self,
        find_problem: Callable[[object], str],
        method: str,
        *args: Any,
        through: type[Exception] | tuple[()] = (),
    ) -> Any:
        try:
            result = getattr(self._protocol, method)(*args)
            problem = find_problem(result)
        except through:
            raise
        except (Exception, SystemExit) as error:  # a plugin's sys.exit() must not end the run
            raise ProtocolFailure(f"{method}() raised {type(error).__name__}: {error}") from error
        if problem:
            raise ProtocolFailure(f"{method}() returned {problem}")
        return result


def _find_answer_problem(value: object) -> str:
    return "" if value is None else _find_text_problem(value)


def _find_text_problem(value: object) -> str:
    return "" if isinstance(value, str) else f"{type(value).__name__}; expected text"


def _find_score_problem(value: object) -> str:
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return ""
    return f"{value!r}; expected a finite number"
