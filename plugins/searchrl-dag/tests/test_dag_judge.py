"""The reward `dag_judge`: the published rule, and the criteria of rewards."""

from __future__ import annotations

from searchrl_dag.rewards import make_dag_judge

from searchrl.contracts import SEARCH, Action, Episode, EpisodeTurn, JudgeCase, Task, Verdict

TASK = Task("t", "test", 0, "Who signed it?", answers=("Ada Lovelace",))
VALID = "<think>t</think><search>Nodes:\nA: charter (General)\nEdges:\n</search>"
CIRCLE = VALID.replace("Edges:\n", "B: who (News)\nEdges:\nA -> B; B -> A\n")


class Judge:
    """Says partly right, and counts."""

    asked = 0

    def judge(self, case: JudgeCase) -> Verdict:
        self.asked += 1
        return Verdict(0.5)


def played(search: str, kind: str = SEARCH, answer: str | None = "Ada Lovelace") -> Episode:
    turn = EpisodeTurn(search, Action(kind, ("charter",) if kind == SEARCH else None))
    return Episode(TASK, (turn,), final_answer=answer)


def test_a_valid_plan_earns_what_the_judge_says() -> None:
    judge = Judge()
    assert make_dag_judge(judge)(played(VALID)) == 0.5
    assert judge.asked == 1


def test_without_a_valid_plan_or_an_answer_it_is_0_and_nobody_is_asked() -> None:
    judge = Judge()
    reward = make_dag_judge(judge)
    refused = played(CIRCLE, "invalid")
    for episode in (
        refused,
        Episode(TASK, final_answer="Ada Lovelace"),
        played(VALID, answer=None),
    ):
        assert reward(episode) == 0.0
    assert judge.asked == 0
