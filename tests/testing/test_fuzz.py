"""The texts that the checker draws: always the same ones, shortened, nothing left behind."""

from searchrl.testing.kit.fuzz import find_faulty, make_texts


def test_the_simplest_faulty_text_is_found_and_the_same_every_time() -> None:
    texts = make_texts(["</answer>", "<answer>"])
    found = {find_faulty((), texts, lambda text: "</answer><answer>" in text) for _ in range(2)}
    assert found == {("</answer><answer>", True)}
