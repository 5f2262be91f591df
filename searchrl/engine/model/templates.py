"""Chat templates: Jinja that comes with a tokenizer, run in the sandbox of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from searchrl.errors import PolicyError


def apply_template(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, thinking: bool, tools: Any = None
) -> str:
    """The text of a dialogue whose next turn is the assistant's.

    Raises:
        PolicyError: the template fails.
    """
    try:
        text = tokenizer.apply_chat_template(
            list(messages),
            tools=tools,
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=thinking,
        )
    except Exception as error:  # it may compute anything: ZeroDivisionError, …
        raise PolicyError(
            f"the tokenizer's chat template failed on a plain dialogue: {error or type(error)}"
        ) from error
    return str(text)
