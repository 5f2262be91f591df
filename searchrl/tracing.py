"""OpenTelemetry spans of a run; they go nowhere until a tracer provider is set (searchrl-otel).

Names are those of its conventions for GenAI, and ours below `searchrl.`.
"""

import json
import os

from opentelemetry.trace import get_tracer

TRACER = get_tracer("searchrl")


def of_text(name: str, text: object) -> dict[str, str]:
    """The attribute of a text, where the environment allows it; of a structure, as JSON."""
    if os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() != "true":
        return {}
    return {name: text if isinstance(text, str) else json.dumps(text, default=str)}
