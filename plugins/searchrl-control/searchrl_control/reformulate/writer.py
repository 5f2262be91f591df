"""The reformulator that asks a model: any endpoint, or any function from a prompt to a text.

Owns the two prompts and how a reply becomes a search. A policy that was trained here is asked
through the server it runs on, or as a function.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from searchrl import EndpointFailure
from searchrl.api_client import Client, EndpointConfig, Message, Request
from searchrl_control.reformulate.contract import Asked, Rewrite

Ask = Callable[[str], str]
"""`ask(prompt)`: what a model writes. Raises on failure. Called by several threads at once."""

MAX_TOKENS = 64
"""Of a reply: one line."""

_SHOWN = 3
_MAX_CHARACTERS = 300
"""Passages that a model is shown, and how much of each."""

_NARROW = """Rewrite a search query so that it finds fewer and more specific documents. \
Use exact terms of the documents where they fit the question. \
Reply with the new query alone, on one line.

Question: {question}
Documents found so far:
{documents}
New query:"""

_BROAD = """Rewrite a search query so that it finds more documents. Leave out what is too specific \
and add other words for the same. Reply with the new query alone, on one line.

Question: {question}
Documents found so far:
{documents}
New query:"""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(r"^\s*(?:new\s+)?query\s*:\s*", re.IGNORECASE)


class Written:
    """Narrow and Broad in the words of a model.

    Args:
        ask: the model.
        key: says which model it is, and how it is asked.
    """

    def __init__(self, ask: Ask, key: str) -> None:
        self._ask = ask
        self.key = f"written:{key}"

    def narrow(self, asked: Asked) -> Rewrite:
        """What the model writes of the prompt for fewer documents."""
        return self._write(_NARROW, asked)

    def broaden(self, asked: Asked) -> Rewrite:
        """What the model writes of the prompt for more documents."""
        return self._write(_BROAD, asked)

    def _write(self, prompt: str, asked: Asked) -> Rewrite:
        shown = [_show(p.title, p.text) for p in asked.passages[:_SHOWN]]
        documents = "\n".join(shown) or "(none)"
        text = read_line(self._ask(prompt.format(question=asked.question, documents=documents)))
        # A model that writes nothing has found no better words: the question stays.
        return Rewrite(text or asked.question)


def ask_endpoint(url: str, model: str, settings: EndpointConfig | None = None) -> Ask:
    """A function that asks an OpenAI-compatible endpoint, with its cache, retries and budget.

    Raises:
        ConfigError: for a wrong address or key.
    """
    client = Client(url, model, settings or EndpointConfig())

    def ask(prompt: str) -> str:
        reply = client.complete(Request((Message("user", prompt),), MAX_TOKENS))
        if not reply.text.strip():
            raise EndpointFailure(
                f"the model '{model}' at {url} wrote nothing. If it thinks before it answers, "
                "turn that off, or name another model"
            )
        return reply.text

    return ask


def read_line(text: str) -> str:
    """The first line of a reply that says anything, without a label and quotation marks.

    What a model thinks before it answers is no answer.
    """
    for line in _THOUGHT.sub("", text).splitlines():
        if said := _LABEL.sub("", line).strip().strip("\"'“”`").strip():
            return said
    return ""


def _show(title: str, text: str) -> str:
    shown = " ".join(f"{title}. {text}".split() if title else text.split())
    return "- " + shown[:_MAX_CHARACTERS]
