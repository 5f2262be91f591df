"""The reformulator that asks a model: a server, or weights that are here.

Such a model answers greedily, so that the same weights always write the same, and its answers are
kept on disk.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from searchrl_retrieval.dense.models import fingerprint_model

from searchrl import ConfigError, EndpointFailure, PolicyError, choose_policy, suggest_path
from searchrl.api_client import Client, EndpointConfig, JsonCache, Message, Request
from searchrl_control.searching.reformulators import Asked, Rewrite, as_shown

Ask = Callable[[str], str]
"""`ask(prompt)`: a model's reply. Raises on failure. Called by several threads at once."""

MAX_TOKENS = 64
"""Tokens of a reply: one line."""

_SHOWN = 3
_MAX_CHARACTERS = 300
"""Passages that a model is shown, and how much of each."""

_NARROW = (
    "Rewrite a search query so that it finds fewer and more specific documents. Use exact terms of "
    "the documents where they fit the question."
)
_BROAD = (
    "Rewrite a search query so that it finds more documents. Leave out what is too specific and "
    "add other words for the same."
)
_PROMPT = """{task} Reply with the new query alone, on one line.

Question: {question}
Documents found so far:
{documents}
New query:"""

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(r"^\s*(?:new\s+)?query\s*:\s*", re.IGNORECASE)


class Written:
    """Narrow and Broad in the words of a model."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def narrow(self, asked: Asked) -> Rewrite:
        """The model's query for fewer documents."""
        return self._write(_NARROW, asked)

    def broaden(self, asked: Asked) -> Rewrite:
        """The model's query for more documents."""
        return self._write(_BROAD, asked)

    def _write(self, task: str, asked: Asked) -> Rewrite:
        shown = [" ".join(as_shown(one).split()) for one in asked.passages[:_SHOWN]]
        cut = [f"- {text[:_MAX_CHARACTERS]}" for text in shown]
        prompt = _PROMPT.format(
            task=task, question=asked.question, documents="\n".join(cut) or "(none)"
        )
        # A model that writes nothing has found no better words: the question stays.
        return Rewrite(read_line(self._ask(prompt)) or asked.question)


def ask_endpoint(url: str, model: str) -> Ask:
    """A function that asks an OpenAI-compatible endpoint, with its cache, retries and budget."""
    client = Client(url, model, EndpointConfig())

    def ask(prompt: str) -> str:
        reply = client.complete(Request((Message("user", prompt),), MAX_TOKENS))
        if not reply.text.strip():
            raise EndpointFailure(
                f"the model '{model}' at {url} wrote nothing. If it thinks before it answers, "
                "turn that off, or name another model"
            )
        return reply.text

    return ask


def ask_weights(name: str, kept: Path) -> Ask:
    """A function that asks a model whose weights are here; it is loaded when it is first needed.

    `name` is a run or a checkpoint, the folder of a model, or `tiny`, the small model that comes
    with SearchRL and has learned no such task; `kept` is the file that keeps its answers.
    """
    is_tiny = name == "tiny"
    path = Path(str(files("searchrl"))) / "assets/tiny" if is_tiny else Path(name).expanduser()
    chosen = choose_policy(path) if path.is_dir() else None
    if chosen is None:
        raise ConfigError(
            f"there are no weights at '{name}'; expected a run, the folder of a model, or tiny."
            f"{suggest_path(path)} A model of a hub is downloaded first: hf download {name}. A "
            "server is asked with env.url=ADDRESS"
        )
    key, lock = fingerprint_model(chosen.folder), threading.Lock()
    answers = JsonCache(kept, advice="remove the file, or use none: --set env.cache=off")

    def ask(prompt: str) -> str:
        place = JsonCache.key(key, {"prompt": prompt})
        text = answers.get(place)
        if not isinstance(text, str):
            # One prompt at a time: the answers of a batch depend on who stands beside whom.
            with lock:
                text = _generate(_load(chosen.folder), prompt)
            answers.put(place, text)
        return text

    return ask


def read_line(text: str) -> str:
    """The first line of a reply that has words, without thought, label and quotation marks."""
    lines = (_LABEL.sub("", line).strip() for line in _THOUGHT.sub("", text).splitlines())
    return next(filter(None, (line.strip("\"'“”`").strip() for line in lines)), "")


@cache
def _load(folder: Path) -> Any:
    from transformers import pipeline

    try:
        # Below an adapter, transformers loads its model as well.
        return pipeline("text-generation", str(folder), model_kwargs={"use_safetensors": True})
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise PolicyError(f"the model in '{folder}' cannot be loaded: {error}") from error


def _generate(model: Any, prompt: str) -> str:
    has_chat = bool(model.tokenizer.chat_template)
    (made,) = model(
        [{"role": "user", "content": prompt}] if has_chat else f"{prompt}\n",
        do_sample=False,
        max_new_tokens=MAX_TOKENS,
        return_full_text=False,
        tokenizer_encode_kwargs={"enable_thinking": False} if has_chat else None,
    )
    return str(made["generated_text"])
