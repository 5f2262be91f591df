"""OpenTelemetry spans of a run: steps, episodes, turns, tool calls, searches, rewards, updates.

They go nowhere until a tracer provider is set, as the package searchrl-otel does. Names are those
of its conventions for GenAI, and ours below `searchrl.`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Span, get_tracer, set_span_in_context

TRACER = get_tracer("searchrl")

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that, set to `true`, lets texts into spans."""


def start_span(name: str, parent: Span | None = None, **facts: Any) -> Span:
    """Start a span below `parent`, by default the one around this code; see `describe`."""
    span = TRACER.start_span(name, None if parent is None else set_span_in_context(parent))
    describe(span, **facts)
    return span


def end_span(span: Span, texts: Mapping[str, object] | None = None, **facts: Any) -> None:
    """End a span, once, with more facts; see `describe`."""
    if span.is_recording():
        describe(span, texts, **facts)
        span.end()


def describe(span: Span, texts: Mapping[str, object] | None = None, **facts: Any) -> None:
    """Give a span attributes `searchrl.NAME`; `texts` only where `CONTENT` allows it."""
    if span.is_recording():
        known = {f"searchrl.{name}": value for name, value in facts.items() if value is not None}
        if texts and os.environ.get(CONTENT, "").lower() == "true":
            known |= {name: str(value) for name, value in texts.items()}
        span.set_attributes(known)
