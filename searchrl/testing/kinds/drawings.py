"""The criterion of drawings, D1: for every kind that may draw an episode.

Owns which episodes are drawn for which kind. What has no method `draw_episode` draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from searchrl.contracts.playing import Drawer
from searchrl.core.drawing import find_drawings_problem
from searchrl.core.episode import Episode, Task
from searchrl.testing.criteria import MAX_PROBLEMS, NotApplicable, Problem, criterion
from searchrl.testing.kinds.playing import find_episodes, make_env
from searchrl.testing.kit.cases import make_episode, reward_cases
from searchrl.testing.kit.policies import Says, play_episode
from searchrl.testing.kit.subject import Subject
from searchrl.testing.trials import Trial, Way, judged, unchanged, unmutated


def _find_episodes(subject: Subject) -> dict[str, Episode]:
    """Episodes under the words that name them: an environment's own, or made-up ones."""
    if subject.entry.kind == "env":
        env, protocol = make_env(subject), subject.grammar.protocol
        return {
            name: play_episode(env, Says(turns), protocol, **options, max_turns=len(turns))
            for name, (options, turns) in find_episodes(subject, 1).items()
        }
    if subject.entry.kind == "reward":
        return {f"case '{case.name}' ({case.why})": case.episode for case in reward_cases()}
    turns, protocol = subject.grammar.legal_turns, subject.grammar.protocol
    task = Task("drawn", "test", 0, "Which?", answers=("Zanzibar",))
    dialogues = ((), ("plain words",), tuple(turns), *zip(turns))
    return {f"the turns {said!r:.80}": make_episode(task, said, protocol) for said in dialogues}


def _make(subject: Subject) -> Any:
    return make_env(subject).unwrapped if subject.entry.kind == "env" else subject.make()


def _find_problem(episode: Episode, drawings: object) -> str:
    problem = find_drawings_problem(drawings)
    return f"draw_episode() returned {problem}" if problem else ""


_DRAWN = Trial(_find_episodes, lambda drawer, episode: drawer.draw_episode(episode), _make)
_CHECKS = (
    judged(_DRAWN, raises=True)(_find_problem),
    unchanged(_DRAWN, Way.LATER, Way.ELSEWHEN),
    unmutated(_DRAWN),
)


@criterion("D1")
def _draws(subject: Subject) -> Iterator[Problem]:
    if not isinstance(_make(subject), Drawer):
        raise NotApplicable("it has no method draw_episode(), so it draws nothing")
    for check in _CHECKS:
        problems = list(check(subject))
        yield from problems[:MAX_PROBLEMS]
        if problems:
            return
