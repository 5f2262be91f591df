"""The reward `dag_judge`: what the judge says of an answer that a valid plan led to.

Owns the rule of the published system: an episode whose DAG is invalid earns 0 here, whatever it
answers, and the judge is not asked. Which judge it is, the configuration says.
"""

from __future__ import annotations

from searchrl.contracts import JUDGE_SCALE, Episode, Judge, Unscored
from searchrl.rewards import FunctionReward, ask_judge
from searchrl_dag.rewards import make_dag


def make_dag_judge(judge: Judge) -> FunctionReward:
    """The judge's 0, 0.5 or 1; 0 without a valid plan, or without an answer."""
    dag = make_dag()

    def score(episode: Episode) -> float | Unscored:
        return ask_judge(judge, episode) if dag(episode) == 1 else 0.0

    return FunctionReward("dag_judge", score, JUDGE_SCALE)
