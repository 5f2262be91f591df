"""The picture of neighbouring tokens: what it shows, and that a terminal prints it as it is."""

from searchrl.core.excerpt import AROUND, take_excerpt, visible
from searchrl.core.trajectory import Trajectory, TurnStop

EVIL = "\x1b]52;c;aGk=\x07\u202e\x9b31m\n\u2028\ud800"


def rollout() -> Trajectory:
    trajectory = Trajectory("step0/prompt0/1", "step0/prompt0")
    trajectory.append_prompt(range(10))
    trajectory.append_model([20, 21, 22], [-0.5, -1.0, -2.0], version=0, reason=TurnStop.EOS)
    trajectory.append_env([30, 31])
    return trajectory


def decode(ids: object) -> str:
    return f"t{next(iter(ids))}"  # type: ignore[call-overload]


def test_the_tokens_around_a_place_with_what_is_known_of_each() -> None:
    shown = take_excerpt(rollout(), 11, decode, trainer_logps={11: -1.25})
    assert [token.place for token in shown.tokens] == list(range(11 - AROUND, 15))
    assert [token.is_fault for token in shown.tokens].index(True) == AROUND
    fault = shown.tokens[AROUND]
    assert fault.cells == ("11", "21 t21", "model", "yes", "-1.0000", "-1.2500")
    assert shown.tokens[0].cells == ("6", "6 t6", "prompt", "no", "—", "—")
    assert shown.tokens[-1].cells[2:4] == ("env", "no")
    assert shown.num_tokens == 15


def test_as_many_tokens_stand_behind_the_place_as_before_it() -> None:
    shown = take_excerpt(rollout(), 7, decode)
    assert [token.place for token in shown.tokens] == list(range(7 - AROUND, 7 + AROUND + 1))


def test_a_place_beyond_the_end_marks_the_last_token() -> None:
    shown = take_excerpt(rollout(), 99, decode, is_trained=[True])
    assert shown.tokens[-1].is_fault and shown.tokens[-1].place == 14
    assert shown.tokens[-1].is_trained is None  # the mask ends before it


def test_what_commands_a_terminal_is_spelt_out_and_other_writing_stays() -> None:
    assert visible("déjà 学校 <think>\n") == "déjà 学校 <think>\\n"
    shown = str(take_excerpt(rollout(), 11, lambda ids: EVIL))
    assert all(line.isprintable() for line in shown.splitlines())
    assert "\\x1b]52" in shown and "\\u202e" in shown and "\\ud800" in shown
