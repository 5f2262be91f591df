"""Long texts cost time in proportion: a passage of blanks must not hold up a rollout."""

from __future__ import annotations

import pytest

from searchrl.plugins import load_plugins

REGISTRY = load_plugins(entry_points=False)
SIZE = 50_000
TEXTS = {
    "blanks behind a bracket": "<" + " " * SIZE,
    "blanks behind a slash": "</" + " " * SIZE + "x",
    "blanks behind a name": "<think" + " " * SIZE,
    "brackets": "<" * SIZE,
    "brackets and blanks": "< " * SIZE,
    "opened and never closed": "<think>" * (SIZE // 10),
    "lines": "<answer>" + " \n" * SIZE,
}


@pytest.mark.timeout(20)  # what is quadratic takes minutes
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("name", REGISTRY.names("protocol"))
def test_reading_takes_time_in_proportion(name: str, text: str) -> None:
    protocol = REGISTRY.get("protocol", name).make()
    assert protocol.neutralise(text)
    assert protocol.parse(text).kind
    assert protocol.format_score([text]) == 0
    assert protocol.final_answer([text]) is None
