"""The scorer: combination, Unscored, and every way a component can go wrong."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from searchrl.core.episode import (
    ANSWER,
    SEARCH,
    Action,
    Episode,
    EpisodeTurn,
    Failure,
    FailureKind,
    Passage,
    Score,
    Task,
    Unscored,
)
from searchrl.errors import PluginError, UnknownNameError
from searchrl.rewards.components import BUILTIN_REWARDS, make_signal
from searchrl.rewards.expression import RewardSchedule
from searchrl.rewards.scorer import ScoredEpisode, Scorer, score_together
from searchrl.tool_calls import DeadlineExceeded

EPISODE = Episode(
    Task("t1", "test", 0, "Where?", answers=("Paris",)),
    (
        EpisodeTurn("", Action(SEARCH, ("q",)), (Passage("p", "Paris"),)),
        EpisodeTurn("", Action(ANSWER, "Paris")),
    ),
    "Paris",
    format_score=1.0,
)


@dataclass
class Component:
    result: Any
    name: str = "probe"
    values: tuple[float, ...] = (0.0, 0.5, 1.0)
    is_range: bool = False

    def __call__(self, episode: Episode) -> Any:
        return self.result(episode) if callable(self.result) else self.result


def make_scorer(spec: object = "probe", probe: Any = 1.0, **options: Any) -> Scorer:
    components = {name: factory() for name, factory in BUILTIN_REWARDS.items()}
    component = probe if isinstance(probe, Component) else Component(probe)
    return Scorer({**components, "probe": component}, RewardSchedule.parse(spec), **options)


def score_probe(result: Any, **fields: Any) -> ScoredEpisode:
    return make_scorer("em+probe", Component(result, **fields), timeout_s=10).score(EPISODE)


def test_combines_and_keeps_every_component_apart_metrics_included() -> None:
    scorer = make_scorer("0.2*format+em-0.01*searches", metrics=("f1", "searched", "em"))
    scored = scorer.score(EPISODE)
    assert scored.reward == pytest.approx(1.19)
    assert scorer.ranges["f1"] == (0.0, 1.0) and scorer.ranges["searches"] == (0.0, math.inf)
    assert scored.scores == {
        "format": 1.0, "em": 1.0, "searches": 1.0, "f1": 1.0, "searched": 1.0,
    }  # fmt: skip
    assert scored.unscored is None and scored.failure is None and not scored.missing


@pytest.mark.parametrize(
    ("values", "is_range"),
    [((), False), (None, False), (("0", "1"), False), ((0.0, math.nan), False), ((0.0,), True),
     ((1.0, 0.0), True), ((0.0, 1.0), "yes")],
)  # fmt: skip
def test_component_that_declares_no_values_is_named_at_once(values: Any, is_range: Any) -> None:
    probe = Component(1.0, values=values, is_range=is_range)
    with pytest.raises(PluginError, match="reward 'probe' of plugin p declares values = .*expect"):
        make_scorer("em+probe", probe, owners={"probe": "plugin p"})
    class_of_its_own = type("Bare", (), {"__call__": lambda self, episode: 0.0})()
    with pytest.raises(PluginError, match="reward 'bare' declares values = \\(\\) and is_range"):
        Scorer({"bare": class_of_its_own}, RewardSchedule.parse("bare"))
    uncalled = type("Uncalled", (), {"values": (0.0, 1.0), "is_range": False})()
    with pytest.raises(PluginError, match="'uncalled' declares values = .*__call__"):
        Scorer({"uncalled": uncalled}, RewardSchedule.parse("uncalled"))


def test_the_schedule_follows_the_step_of_the_episode() -> None:
    scorer = make_scorer({0: "format", 3: "10*em+format"})
    rewards = [scorer.score(replace(EPISODE, step=step)).reward for step in (1, 3, 4, 50)]
    assert rewards == [1.0, 1.0, 11.0, 11.0]
    assert scorer.score(EPISODE).scores == {"format": 1.0, "em": 1.0}  # em is a metric before


def test_episodes_of_several_scorers_are_scored_together() -> None:
    calls: list[Episode] = []
    probe = Component(lambda episode: float(calls.append(episode) is None))
    long, short = (
        make_scorer("2*em+format+probe", probe),
        make_scorer("f1+probe", probe, timeout_s=None),
    )
    assert long.timeout_s == 30
    scored = score_together([(short, EPISODE), (long, EPISODE), (short, EPISODE)])
    assert [one.reward for one in scored] == [2.0, 4.0, 2.0] and len(calls) == 3
    assert scored[0].scores == {"f1": 1.0, "probe": 1.0}


def test_a_component_that_takes_one_call_at_a_time_is_called_so() -> None:
    inside: list[int] = []
    most = 0

    def slow(episode: Episode) -> float:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        time.sleep(0.05)
        inside.pop()
        return 1.0

    for alone, expected in ((["probe"], 1), ([], 4)):
        most, scorer = 0, make_scorer("probe", slow, alone=alone)
        score_together([(scorer, EPISODE)] * 4)
        assert most == expected


def test_a_signal_of_the_environment_is_a_component_that_nobody_registered() -> None:
    signal = make_signal("signal:length")
    scorer = Scorer(
        {"em": BUILTIN_REWARDS["em"](), signal.name: signal},
        RewardSchedule.parse("em"),
        metrics=["signal:length"],
    )
    assert (scorer.names, scorer.components) == (("em", "signal:length"), ("em",))
    for length in (-7.0, 0.0):
        scored = scorer.score(replace(EPISODE, signals={"length": length}))
        assert (scored.scores["signal:length"], scored.reward) == (length, 1.0)
    assert scorer.score(EPISODE).missing == {"signal:length": "the episode has no signal 'length'"}


def test_an_unknown_component_is_refused_when_the_scorer_is_made() -> None:
    with pytest.raises(UnknownNameError, match=r"'serched'\. Did you mean 'searche"):
        make_scorer("em", metrics=("serched",))


def test_a_failed_episode_is_unscored_before_any_component_runs() -> None:
    def forbidden(episode: Episode) -> float:
        raise AssertionError("ran")

    failure = Failure(FailureKind.RETRIEVER, "retriever 'bm25'", "connection refused")
    scored = make_scorer("probe", forbidden).score(replace(EPISODE, failure=failure))
    assert scored.reward is None and scored.failure is failure and not scored.scores
    assert scored.unscored == "retriever failure of retriever 'bm25': connection refused"


def test_a_judge_failure_is_unscored_and_not_scored_zero() -> None:
    scored = score_probe(Unscored("the judge gave no verdict"))
    assert scored.reward is None and scored.failure is None
    assert scored.unscored == "reward 'probe' could not score: the judge gave no verdict"
    assert "probe" not in scored.scores and scored.scores["em"] == 1.0
    assert scored.missing == {"probe": "the judge gave no verdict"}


@pytest.mark.parametrize("spec", ["em", "em+0*probe"])
def test_a_metric_that_cannot_score_takes_nothing_from_the_reward(spec: str) -> None:
    scored = make_scorer(spec, Unscored("no gold"), metrics=("probe",)).score(EPISODE)
    assert scored.reward == 1.0 and scored.unscored is None
    assert "probe" not in scored.scores and scored.missing == {"probe": "no gold"}


def raises(error: BaseException) -> Callable[[Episode], float]:
    def component(episode: Episode) -> float:
        raise error

    return component


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (raises(ValueError("bad row")), "raised ValueError: bad row"),
        (math.nan, "returned nan, which is not a finite number"),
        (0.4999, "outside the declared values"),
        (0.7, r"returned 0.7, outside the declared values (0, 0.5, 1)"),
        (None, "returned None (NoneType); expected a number, Score or Unscored"),
        (Score(2.0), "returned 2, outside the declared values"),
        (Score(1.0, (0.1,)), "returned 1 per-turn scores for an episode of 2 turns"),
        (Score(1.0, (0.1, math.nan)), "returned the per-turn score nan"),
    ],
)
def test_a_broken_component_is_an_attributed_failure_and_not_a_zero(result: Any, message: str):
    scorer = make_scorer("em+probe", result, owners={"probe": "judges 0.2 (judges.py)"})
    scored = scorer.score(EPISODE)
    assert scored.reward is None and scored.failure is not None and scored.unscored is not None
    assert scored.failure.kind is FailureKind.SCORING
    assert scored.failure.owner == "reward 'probe' of judges 0.2 (judges.py)"
    assert message in scored.failure.message and message in scored.unscored
    assert "Traceback" in scored.failure.detail
    assert "probe" not in scored.scores and scored.scores["em"] == 1.0
    assert scored.missing == {"probe": scored.failure.message}


def test_a_broken_metric_is_a_failure_too() -> None:
    scored = make_scorer("em", raises(ValueError("x")), metrics=("probe",)).score(EPISODE)
    assert scored.reward is None and scored.failure is not None


def test_a_hanging_component_is_a_timeout_that_says_where_it_hangs() -> None:
    def hang(episode: Episode) -> float:
        time.sleep(2)
        return 1.0

    start = time.monotonic()
    scored = make_scorer("em+probe", hang, timeout_s=0.05).score(EPISODE)
    assert time.monotonic() - start < 1.5
    assert scored.reward is None and scored.failure is not None
    assert scored.failure.kind is FailureKind.TIMEOUT
    assert scored.failure.message == "did not return within 0.05 s"
    assert scored.unscored == "reward 'probe': did not return within 0.05 s"
    # A call that the component made itself was late: not the component.
    late = raises(DeadlineExceeded("retriever 'bm25'", 1.0))
    failure = make_scorer("probe", late).score(EPISODE).failure
    assert failure is not None and failure.kind is FailureKind.SCORING
    assert "in hang" in scored.failure.detail and "time.sleep(2)" in scored.failure.detail


@pytest.mark.parametrize(
    ("result", "fields", "value"),
    [
        (True, {}, 1.0),
        (Score(0.5), {}, 0.5),
        (0.1 + 0.2, {"values": (0.0, 0.3)}, 0.1 + 0.2),
        (0.3 - 0.2 - 0.1, {"values": (0.0, 1.0), "is_range": True}, 0.3 - 0.2 - 0.1),  # -3e-17
        (-3.0, {"values": (-math.inf, math.inf), "is_range": True}, -3.0),
    ],
)
def test_numbers_inside_the_declaration_pass(result: Any, fields: dict[str, Any], value: float):
    assert score_probe(result, **fields).scores["probe"] == value


def test_process_scores_are_kept_per_turn() -> None:
    scored = score_probe(Score(1.0, (0.25, 2.0)))
    assert scored.per_turn == {"probe": (0.25, 2.0)} and scored.reward == 2.0


def test_a_sum_that_overflows_is_unscored_and_not_an_infinite_reward() -> None:
    probe = Component(10.0, values=(0.0, 100.0), is_range=True)
    scored = make_scorer("1e308*probe", probe).score(EPISODE)
    assert scored.reward is None and scored.failure is not None
    assert "not a finite number" in scored.failure.message


@pytest.mark.parametrize("value", [1e31, -1e200])
def test_what_is_too_large_to_compute_with_is_unscored(value: float) -> None:
    """Its square is not finite, and then neither are advantages, intervals and the loss."""
    any_number = {"values": (-math.inf, math.inf), "is_range": True}
    scored = score_probe(value, **any_number)
    assert scored.reward is None and scored.unscored is not None
    assert f"returned {value:g}, which is too large (at most 1e+30)" in scored.unscored
    probe = Component(math.copysign(1e30, value), **any_number)
    assert make_scorer("probe", probe).score(EPISODE).reward == probe.result
    message = make_scorer("2*probe", probe).score(EPISODE).unscored
    assert message is not None and "too large to compare" in message


class Selective(Component):
    def applies(self, task: Task) -> bool:
        if task.id == "broken":
            raise KeyError("no such task")
        if task.id == "gone":
            sys.exit("no such task")
        return bool(task.answers)


def test_a_component_that_says_nothing_about_a_task_leaves_its_term_out() -> None:
    """The share of gold passages was 1 for a search in a task that has no gold passage."""
    scorer = make_scorer("format+2*probe", Selective(1.0), metrics=["support_recall"])
    assert scorer.score(EPISODE).reward == 3.0
    silent = replace(EPISODE, task=replace(EPISODE.task, answers=()))
    scored = scorer.score(silent)
    assert scored.reward == 1.0 and dict(scored.scores) == {"format": 1.0}
    assert not scored.missing and scored.unscored is None


def test_applies_that_raises_is_a_failure_of_its_reward() -> None:
    scorer = make_scorer("probe", Selective(1.0), owners={"probe": "plugin mine"})
    for name, error in (("broken", "KeyError"), ("gone", "SystemExit")):
        scored = scorer.score(replace(EPISODE, task=replace(EPISODE.task, id=name)))
        assert scored.reward is None and scored.failure is not None
        assert scored.failure.owner == "reward 'probe' of plugin mine"
        assert f"applies() raised {error}" in str(scored.unscored)
    assert scorer.applies("probe", None), "nothing is known of a task that nobody describes"


@pytest.mark.parametrize(
    ("spec", "headline"),
    [("format+em", "em"), ("env+em", "em"), ("env", "env"), ("env+0*em", "env"), ("f1", "reward"),
     ({0: "em", 3: "f1"}, "reward"), ({0: "format", 5: "format+em"}, "em")],
)  # fmt: skip
def test_a_run_is_judged_by_what_it_pays(spec: Any, headline: str) -> None:
    components = {name: make() for name, make in BUILTIN_REWARDS.items()}
    assert Scorer(components, RewardSchedule.parse(spec)).headline == headline
