"""An agent as people write them: a loop around the `openai` client, with a tool.

It knows nothing of training. The embedded policy of this package was shown how to answer it.
"""

import json
from typing import Any

import httpx2 as httpx
from openai import OpenAI

# One pool of connections for all rollouts, each of which may wait for its turn.
WEB = httpx.Client(timeout=600, limits=httpx.Limits(max_connections=None))
SEARCH: dict[str, Any] = {
    "name": "search",
    "description": "Search the documents.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def act(task: dict[str, Any], base_url: str, api_key: str) -> str | None:
    """Call tools until the model answers; returns the answer."""
    client = OpenAI(base_url=base_url, api_key=api_key, http_client=WEB)
    messages: list[Any] = [{"role": "user", "content": task["question"]}]
    tools: list[Any] = [{"type": "function", "function": SEARCH}]
    while True:
        made = client.chat.completions.create(model="policy", messages=messages, tools=tools)
        message = made.choices[0].message
        messages.append(message)
        calls: list[Any] = message.tool_calls or []
        if not calls:
            return message.content
        for call in calls:
            said = WEB.post(
                f"{base_url}/searchrl/tools/{call.function.name}",
                json=json.loads(call.function.arguments),
                headers={"Authorization": f"Bearer {api_key}"},
            ).json()
            content = said.get("result") or said["error"]["message"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
