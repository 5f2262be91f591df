"""Alarms of episodes: too many are cut by a limit, or their searches come to nothing.

They read how episodes went, not what they were worth.
"""

from __future__ import annotations

from dataclasses import dataclass

from searchrl.alarms.curves import above, labels, mean, of_task, percent, streak
from searchrl.alarms.update import Share, Steps
from searchrl.contracts.history import History
from searchrl.contracts.watching import Alert


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """Sounds when a large share of the episodes is cut by a limit of turns or tokens.

    Args:
        max_share: share of the episodes (metric `truncated`).
        steps: how many steps in a row.
    """

    max_share: Share = 0.5
    steps: Steps = 5

    def check(self, history: History) -> Alert | None:
        """Look at the last steps, for every task."""
        for label in labels(history):
            curve = history.curve(f"{label}truncated")
            if bad := streak(curve, above(self.max_share), self.steps):
                return Alert(
                    f"{percent(mean(bad))} of the episodes{of_task(label)} were cut by a limit "
                    "before they ended",
                    bad[0].step,
                    "an episode that is cut has no answer: the policy learns to be short",
                    (
                        "raise the limit that stop_reason in rollouts/ names: "
                        "rollout.max_turn_tokens, rollout.max_total_tokens or max_turns",
                        "if episodes ramble, a cost per search such as -0.01*searches",
                    ),
                )
        return None


@dataclass(frozen=True, kw_only=True)
class RetrievalFailure:
    """Sounds when searches fail, or find nothing.

    Args:
        max_failed: share of the episodes that the retriever may end (metric `failed_retrieval`).
        max_empty: share of the searches that may find nothing (metric `empty_searches`).
        steps: how many steps in a row.
    """

    max_failed: Share = 0.02
    max_empty: Share = 0.9
    steps: Steps = 3

    def check(self, history: History) -> Alert | None:
        """Look at the last steps, for every task: failures first."""
        limits = {"failed_retrieval": self.max_failed, "empty_searches": self.max_empty}
        for label in labels(history):
            for name, limit in limits.items():
                curve = history.curve(f"{label}{name}")
                bad = streak(curve, above(limit), self.steps)
                if not bad:
                    continue
                share = percent(mean(bad))
                if name == "failed_retrieval":
                    return Alert(
                        f"the retriever failed in {share} of the episodes{of_task(label)}",
                        bad[0].step,
                        "such episodes are left out, and those that are left search least",
                        (
                            "read failures/ in the run folder: it has the tracebacks",
                            "check that its service or index is there, then continue with --resume",
                        ),
                        "critical",
                    )
                return Alert(
                    f"{share} of the searches{of_task(label)} found nothing",
                    bad[0].step,
                    "an agent whose searches find nothing learns that searching is useless",
                    ("search yourself: `searchrl play`", "read the queries in rollouts/"),
                )
        return None
