"""Chat templates: rendered as transformers does it; one that fails is one message."""

from __future__ import annotations

from typing import Any

import pytest

from searchrl.engine.model.templates import apply_template
from searchrl.errors import PolicyError


class Tokenizer:
    """The part of a tokenizer that templates are run by: that of transformers."""

    def __init__(self, template: str) -> None:
        self.chat_template = template

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        del options["tokenize"]
        (text,), _ = render_jinja_template([messages], chat_template=self.chat_template, **options)
        return text


def render(template: str) -> str:
    messages = [{"role": "user", "content": "hello"}]
    return apply_template(Tokenizer(template), messages, thinking=True)


def test_plain_template_is_rendered_as_transformers_does() -> None:
    assert render("{{ messages[0].content }} {{ enable_thinking }} é") == "hello True é"


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ raise_exception('no system') }}", "no system"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% for", "unexpected"),
    ],
    ids="zero raise escape broken".split(),
)
def test_a_template_that_fails_is_one_message(template: str, fault: str) -> None:
    with pytest.raises(PolicyError, match=f"chat template.*{fault}"):
        render(template)
