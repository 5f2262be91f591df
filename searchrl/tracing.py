"""OpenTelemetry spans of a run; they go nowhere until a tracer provider is set (searchrl-otel).

Names are those of its conventions for GenAI, and ours below `searchrl.`.
"""

import json
import os

from opentelemetry.trace import get_tracer

TRACER = get_tracer("searchrl")
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that, set to `true`, lets texts into spans."""


def of_text(name: str, text: object) -> dict[str, str]:
    """The attribute of a text, where `CONTENT` allows it; of a structure, as JSON."""
    if os.environ.get(CONTENT, "").lower() != "true":
        return {}
    return {name: text if isinstance(text, str) else json.dumps(text, default=str)}
