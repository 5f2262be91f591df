"""Alarms of a policy that collapses: entropy, form, searches, length, likelihood of good rollouts.

A collapse is a fall that brings nothing. Learning, too, makes a policy surer and shorter, so
entropy and length are not judged while the reward is higher than it was (`curves.is_learning`). The
others are judged in any case.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from searchrl.alarms.curves import (
    WINDOW,
    above,
    below,
    fall_from_best,
    is_learning,
    labels,
    mean,
    of_task,
    streak,
)
from searchrl.alarms.update import Positive, Share, Steps
from searchrl.contracts.history import History
from searchrl.contracts.watching import Alert

_BACK = "go back: --init-from RUN/checkpoints/step_… of before this step, with half of optim.lr"


@dataclass(frozen=True, kw_only=True)
class EntropyCollapse:
    """Sounds when entropy falls to almost nothing, or shoots up, and the reward does not rise.

    Args:
        min_share: share of its first value that it may fall to.
        max_growth: how many times its first value it may become, if that is more than a nat, or
            twice that, more.
        steps: how many steps in a row.
    """

    min_share: Share = 0.1
    max_growth: Positive = 3.0
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the first ones."""
        curve = history.curve("entropy")
        if len(curve) < WINDOW + self.steps or is_learning(history):
            return None
        first = mean(curve[:WINDOW])
        if bad := streak(curve, below(self.min_share * first), self.steps):
            did, so = "fell", "a policy that always does the same has nothing to compare"
            second = "raise algorithm.clip_high (0.28) or rollout.temperature (1.0)"
        elif bad := streak(curve, above(self.max_growth * first), self.steps):
            did, so = "rose", "the policy forgets what it knew and writes at random"
            second = "raise algorithm.beta, which holds it near the starting policy"
        else:
            return None
        return Alert(
            f"the entropy {did} from {first:.2g} to {bad[-1].value:.2g} nats per token, and the "
            "reward is no better than at the start",
            bad[0].step,
            f"{so}; it does not recover by itself",
            (_BACK, second),
            "critical",
        )


@dataclass(frozen=True, kw_only=True)
class FormatCollapse:
    """Sounds when episodes lose the form that they had.

    Args:
        max_drop: how far `format` may fall below its best mean of two steps.
        steps: how many steps in a row.
    """

    max_drop: Share = 0.3
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the best ones, for every task."""
        for label in labels(history):
            curve = history.curve(f"{label}format")
            best, bad = fall_from_best(curve, self.steps, lambda best: best - self.max_drop)
            if bad:
                return Alert(
                    f"the format{of_task(label)} fell from {best:.2f} to {bad[-1].value:.2f}",
                    bad[0].step,
                    "an episode without its tags has no action and no answer, and earns nothing",
                    (_BACK, "put weight on the form, such as 0.2*format+em"),
                    "critical",
                )
        return None


@dataclass(frozen=True, kw_only=True)
class SearchCollapse:
    """Sounds when an agent that used to search, or to call tools, stops doing so.

    Args:
        min_share: share of its best mean of two steps that `searched` or `tool_calls` may fall to.
        min_before: what that best mean has to be: below it there is nothing to lose.
        steps: how many steps in a row.
    """

    min_share: Share = 0.1
    min_before: Positive = 0.1
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the best ones, for every task."""
        for label in labels(history):
            for name, act in (("searched", "searches"), ("tool_calls", "calls its tools")):
                curve = history.curve(f"{label}{name}")
                best, bad = fall_from_best(curve, self.steps, lambda best: self.min_share * best)
                if bad and best >= self.min_before:
                    return Alert(
                        f"the agent{of_task(label)} hardly {act} any more: {name} fell from "
                        f"{best:.2f} to {bad[-1].value:.2f}",
                        bad[0].step,
                        "if no rollout of a group does it, no group can show that it pays",
                        (
                            "if em_forced is above em, reward searching, such as em+0.2*searched",
                            "if it is not, begin with a cold start (searchrl sft)",
                        ),
                    )
        return None


@dataclass(frozen=True, kw_only=True)
class LengthCollapse:
    """Sounds when turns grow to their limit or shrink to nothing, and the reward does not rise.

    Args:
        max_share: share of `rollout.max_turn_tokens` that the mean turn may have.
        min_share: share of its first value that `model_tokens` may fall to.
        steps: how many steps in a row.
    """

    max_share: Share = 0.9
    min_share: Share = 0.2
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the limit and with the first ones, for every task."""
        for label in labels(history):
            curve = history.curve(f"{label}model_tokens")
            if len(curve) < WINDOW + self.steps or is_learning(history, label):
                continue
            first, limit = mean(curve[:WINDOW]), history.setting("rollout.max_turn_tokens") or inf
            turns = {point.step: point.value for point in history.curve(f"{label}turns")}
            # The tokens of an episode per turn, beside the limit of a turn.
            whole = [p._replace(value=p.value / max(turns.get(p.step, 0.0), 1.0)) for p in curve]
            short = streak(curve, below(self.min_share * first), self.steps)
            full = streak(whole, above(self.max_share * limit, or_equal=True), self.steps)
            if not (bad := max(short, full, key=len)):
                continue
            if bad is full:
                what = f"turns{of_task(label)} run into their limit of {limit} tokens"
                why = "a turn that is cut has no action, so the rest of the episode is lost"
                second = "raise rollout.max_turn_tokens if rollouts show whole, long thoughts"
            else:
                now = bad[-1].value
                what = f"episodes{of_task(label)} shrank from {first:.0f} to {now:.0f} tokens"
                why = "a policy that says next to nothing cannot reason or search"
                second = "read rollouts/: what earns the reward of so short an episode?"
            what += ", and the reward is no better than at the start"
            return Alert(what, bad[0].step, why, (_BACK, second))
        return None


@dataclass(frozen=True, kw_only=True)
class LikelihoodCollapse:
    """Sounds when rollouts that did well become ever less likely.

    It reads `good_logp`, the mean log-prob of the tokens of rollouts with a positive advantage.
    This is how search agents begin to collapse, while the reward may still rise.

    Args:
        max_drop: nats per token below its best mean of two steps.
        steps: how many steps in a row.
    """

    max_drop: Positive = 0.3
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Compare the last steps with the best ones."""
        curve = history.curve("good_logp")
        best, bad = fall_from_best(curve, self.steps, lambda best: best - self.max_drop)
        if not bad:
            return None
        return Alert(
            f"rollouts that did well are less and less likely: their log-prob fell from {best:.2f} "
            f"to {bad[-1].value:.2f} nats per token",
            bad[0].step,
            "the update pushes down what it should hold up; entropy and gradients blow up next",
            ("train with --algorithm llds, which holds good rollouts up", "halve optim.lr"),
        )
