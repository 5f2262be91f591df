"""An agent that does what agents do to a history: six kinds of session, drawn by the rollout."""

import zlib
from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

KINDS = ("linear", "parallel", "compacted", "retried", "streamed", "cut")


def act(task, base_url, api_key):
    """Run one session; return its kind."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    kind = KINDS[zlib.crc32(task["rollout_id"].encode()) % len(KINDS)]
    messages = [{"role": "user", "content": task["question"]}]

    def ask(history, **more):
        more = {"max_tokens": 12} | more
        made = client.chat.completions.create(model="policy", messages=history, **more)
        if more.get("stream"):
            text = "".join(c.choices[0].delta.content or "" for c in made if c.choices)
        else:
            text = made.choices[0].message.content
        return [*history, {"role": "assistant", "content": text}]

    def say(history, text):
        return [*history, {"role": "user", "content": text}]

    first = ask(messages, stream=kind == "streamed", max_tokens=2 if kind == "cut" else 12)
    if kind == "parallel":
        with ThreadPoolExecutor(3) as pool:
            [*pool.map(lambda text: ask(say(first, text)), ("And?", "Why?", "Who?"))]
    elif kind == "compacted":
        second = ask(say(first, "And?"))
        ask(say([messages[0], {"role": "user", "content": "In short: nothing yet."}], "Go on."))
        ask(say(second, "So?"))
    elif kind == "retried":
        again = {"extra_headers": {"x-stainless-retry-count": "1"}, "stream": False}
        assert ask(messages, **again) == first
        ask(messages)
        ask(say(first, "And?"), n=2)
    else:
        ask(say(ask(say(first, "And?")), "So?"))
    return kind
