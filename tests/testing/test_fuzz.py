"""The texts that the checker draws: always the same ones, shortened, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from searchrl.testing.kit.fuzz import catch, find_faulty, make_texts, shorten


def test_the_simplest_faulty_text_is_found_and_the_same_every_time() -> None:
    texts = make_texts(["</answer>", "<answer>"])
    found = {find_faulty((), texts, lambda text: "</answer><answer>" in text) for _ in range(2)}
    assert found == {("</answer><answer>", True)}


def test_nothing_is_found_where_nothing_is_faulty() -> None:
    assert find_faulty((), make_texts(["<a>"]), lambda text: False) is None


def test_a_fault_that_comes_and_goes_is_found_all_the_same() -> None:
    calls = []

    def is_faulty_once(text: str) -> bool:
        calls.append(text)
        return len(calls) == 5

    assert find_faulty((), make_texts(["<a>"]), is_faulty_once) == (calls[4], True)


def test_nothing_is_written_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    find_faulty((), make_texts(["<a>"]), lambda text: len(text) > 40)
    assert not list(tmp_path.iterdir())


def test_what_a_call_raises_is_caught_but_not_ctrl_c() -> None:
    assert isinstance(catch(int, "x"), ValueError)
    assert catch(int, "1") is None
    with pytest.raises(KeyboardInterrupt):
        catch(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_long_texts_are_shortened_with_their_length() -> None:
    assert shorten("short") == "'short'"
    assert shorten("x" * 500).endswith("… (500 characters)")
    assert len(shorten("x" * 500)) < 100
