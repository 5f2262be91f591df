"""The alarm of a policy without tokens that always does the same.

It reads the shares and the probabilities of actions (`engine.figures.choices`) and, to tell how bad
it is, the reward. Choices that the environment forces do not count.
"""

from __future__ import annotations

from searchrl.alarms.curves import above, is_learning, labels, of_task, percent, streak
from searchrl.alarms.update import Share, Steps
from searchrl.core.alert import Alert, Severity
from searchrl.core.history import History

_SHARE = "free_action/"
_LEAST = "least_action_p"
_WHY = (
    "what is never tried cannot be found to pay: all rollouts of a group are alike, so nothing is "
    "learned, and it does not recover by itself"
)
_TRIES = (
    "go back: --init-from RUN/checkpoints/step_… of before this step, with half of optim.lr",
    "reward entropy, if the algorithm has a setting for it, or raise rollout.temperature; look at "
    "the reward of episodes that end early, which may be all that it earns",
)


class ActionCollapse:
    """Sounds when a policy that chooses actions by number always chooses the same one.

    Only choices count in which another action was legal.

    Args:
        max_share: share of these choices that one action may have.
        min_probability: a legal action whose probability is no higher is lost: at 0, nothing can
            draw it any more.
        steps: how many steps in a row.
    """

    def __init__(
        self, *, max_share: Share = 0.98, min_probability: Share = 0.0, steps: Steps = 3
    ) -> None:
        self.max_share = max_share
        self.min_probability = min_probability
        self.steps = steps

    def check(self, history: History) -> Alert | None:
        """Look at the last steps, for every task: the shares first."""
        is_kept = above(self.min_probability)
        for label in labels(history):
            severity = Severity.WARNING if is_learning(history, label) else Severity.CRITICAL
            for name in history.names(f"{label}{_SHARE}"):
                found = streak(history.curve(name), above(self.max_share, or_equal=True))
                if len(found) >= self.steps:
                    action = name.removeprefix(f"{label}{_SHARE}")
                    what = (
                        f"the policy{of_task(label)} chooses '{action}' in "
                        f"{percent(found[-1].value)} of the choices in which it could do otherwise"
                    )
                    return Alert(what, found[0].step, _WHY, _TRIES, severity)
            curve = history.curve(f"{label}{_LEAST}")
            found = streak(curve, lambda point: not is_kept(point))
            if len(found) >= self.steps:
                what = (
                    f"a legal action{of_task(label)} has probability {found[-1].value:.2g} "
                    f"(metric {_LEAST}), so it is never drawn"
                )
                return Alert(what, found[0].step, _WHY, _TRIES, severity)
        return None
