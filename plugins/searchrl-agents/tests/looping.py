"""An agent as people write them: a loop around the `openai` client."""

import re

import httpx2 as httpx
from openai import OpenAI


def act(task, base_url, api_key):
    """Search as often as the policy wants, then give its answer."""
    client = OpenAI(base_url=base_url, api_key=api_key)
    messages = [{"role": "user", "content": task["question"]}]
    for _ in range(4):
        stop = ["</search>", "</answer>"]
        made = client.chat.completions.create(
            model="policy", messages=messages, stop=stop, max_tokens=96
        )
        text = made.choices[0].message.content
        messages.append({"role": "assistant", "content": text})
        if query := re.search(r"<search>(.*)", text, re.DOTALL):
            found = httpx.post(
                f"{base_url}/searchrl/tools/search",
                json={"query": query[1]},
                headers={"Authorization": f"Bearer {api_key}"},
            )
            messages.append({"role": "user", "content": found.json()["result"]})
        else:
            answer = re.search(r"<answer>(.*)", text, re.DOTALL)
            return answer[1].strip() if answer else text
    return "unknown"
