"""The texts that the checker draws: always the same ones, shortened, nothing left behind."""

import pytest

from searchrl.testing.kit.fuzz import catch, find_faulty, make_texts


def test_the_simplest_faulty_text_is_found_and_the_same_every_time() -> None:
    texts = make_texts(["</answer>", "<answer>"])
    found = {find_faulty((), texts, lambda text: "</answer><answer>" in text) for _ in range(2)}
    assert found == {("</answer><answer>", True)}


def test_what_a_call_raises_is_caught_but_not_ctrl_c() -> None:
    assert isinstance(catch(int, "x"), ValueError) and catch(int, "1") is None
    with pytest.raises(KeyboardInterrupt):
        catch(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt
