"""The reward cases: really parsed, each of its own name, and of every kind that goes wrong."""

import pytest

from searchrl.protocols import ThinkSearchAnswer
from searchrl.testing import reward_cases
from searchrl.testing.kit.cases import RewardCase

CASES = {case.name: case for case in reward_cases()}


@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_every_episode_is_what_the_protocol_reads_in_its_turns(case: RewardCase) -> None:
    protocol, episode = ThinkSearchAnswer(), case.episode
    texts = [turn.text for turn in episode.turns]
    assert [turn.action for turn in episode.turns] == [protocol.parse(text) for text in texts]
    assert episode.final_answer == protocol.final_answer(texts)
    assert episode.format_score == protocol.format_score(texts)
