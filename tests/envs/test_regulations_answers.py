"""What counts as right in `regulations`: the forms that people write, and no neighbour of them."""

from __future__ import annotations

import pytest

from searchrl.core.episode import ANSWER, Action, Episode, EpisodeTurn, Task
from searchrl.envs.regulations.world.names import Value, ValueKind, spell
from searchrl.envs.text import same_answer
from searchrl.rewards.components import BUILTIN_REWARDS

CASES = [
    (
        Value(ValueKind.NUMBER, "12", "days"),
        "12 | 12 days | twelve | twelve days | Twelve days. | 12 Days",
        "13 | 13 days | thirteen days | 12 weeks | 21 | £12 | 12 13 | not regulated",
    ),
    (
        Value(ValueKind.NUMBER, "45", "points"),
        "45 | 45 points | forty-five points | Forty-five",
        "54 points | forty points | 45 days | five",
    ),
    (
        Value(ValueKind.ROOM, "B214"),
        "B214 | room B214 | in room B214 | Room B214 | b214 | In room B214.",
        "B215 | room B215 | in room B215 | C214 | room 214 | room | B21",
    ),
    (
        Value(ValueKind.AFTERNOON, "16:35"),
        "16:35 | at 16:35 | 4.35 pm | at 4.35 pm | 4:35 pm | 4.35pm | 16.35 | 4.35 PM",
        "4.35 am | 4.35 | 16:30 | 4.30 pm | 15:35 | 16 | at 4",
    ),
    (
        Value(ValueKind.MORNING, "09:00"),
        "09:00 | 9:00 | 9 am | at 9 am | 9.00 am | from 09:00 | at 9.00 am",
        "9 pm | 21:00 | 09:05 | 9.05 am | 10:00",
    ),
    (
        Value(ValueKind.MIDDAY, "12:05"),
        "12:05 | 12.05 pm | at 12:05",
        "12.05 am | 12:50 | 00:05 | 12.50 pm",
    ),
    (
        Value(ValueKind.MONEY, "£34"),
        "£34 | 34 | 34 pounds | thirty-four pounds | £34.00 | £34.",
        "£43 | £35 | 34 days | thirty pounds | 3 | 4",
    ),
    (
        Value(ValueKind.DATE, "26 June"),
        "26 June | June 26 | 26th of June | the 26th of June | on 26 June | 26th June | by 26 June",
        "25 June | 26 July | June | 26 | 27th of June",
    ),
    (Value(ValueKind.DATE, "1 May"), "1 May | 1st of May | May 1st", "11 May | 1th of May | 2 May"),
    (Value(ValueKind.DATE, "12 March"), "12th of March | on 12 March", "12nd of March | 2 March"),
    (Value(ValueKind.DATE, "22 March"), "22nd of March | March 22", "22th of March | 2nd of March"),
    (Value(ValueKind.DATE, "23 March"), "23rd of March", "23th of March | 3rd of March"),
    (
        Value(ValueKind.PERSON, "Mara Oakley"),
        "Mara Oakley | mara oakley",
        "Mara | Oakley | Mara Yates",
    ),
    (
        Value(ValueKind.BUILDING, "Heron Hall"),
        "Heron Hall | in Heron Hall",
        "Heron House | Hall | Heron | in Raven Hall",
    ),
    (Value(ValueKind.FORM, "K27"), "K27 | form K27 | Form K27", "K28 | form K28 | form L27 | form"),
    (Value(ValueKind.FUND, "Harker Fund"), "Harker Fund | the Harker Fund", "Harker Hall | Fund"),
    (Value(ValueKind.EXTENSION, "4173"), "4173 | extension 4173", "4174 | extension 4137 | 417"),
    (Value(ValueKind.CODE, "9021"), "9021 | code 9021", "9012 | code 9022"),
]


def is_right(value: Value, answer: str) -> tuple[bool, bool]:
    """What the `em` reward and the environment's own comparison say."""
    task = Task("t", "test", 0, "Which?", answers=value.answers)
    turn = EpisodeTurn(f"<answer>{answer}</answer>", Action(ANSWER, answer))
    episode = Episode(task=task, turns=(turn,), final_answer=answer, format_score=1.0)
    by_env = any(same_answer(answer, gold) for gold in task.answers)
    return BUILTIN_REWARDS["em"]()(episode) == 1.0, by_env


@pytest.mark.parametrize(("value", "right", "wrong"), CASES, ids=[case[0].bare for case in CASES])
def test_all_forms_of_a_value_are_right_and_its_neighbours_wrong(
    value: Value, right: str, wrong: str
) -> None:
    assert value.answers[0] == value.bare and len(set(value.answers)) == len(value.answers)
    for answer in right.split(" | "):
        assert is_right(value, answer) == (True, True), answer
    for answer in wrong.split(" | "):
        assert is_right(value, answer) == (False, False), answer


def test_numbers_are_spelled_as_people_spell_them() -> None:
    assert [spell(n) for n in (0, 9, 13, 20, 21, 99)] == (
        "zero nine thirteen twenty twenty-one ninety-nine".split()
    )
    assert len({spell(n) for n in range(100)}) == 100
    with pytest.raises(ValueError, match="from 0 to 99"):
        spell(100)
