"""Texts for the tests of protocols: what a model or a corpus might write, and a visible budget."""

from hypothesis import strategies as st

from searchrl.contracts import TokenBudget
from searchrl.core.episode import Passage

NAMES = ("think", "search", "information", "answer", "act", "observation", "tool_call")
NAMES += ("tool_response", "tools", "r", "context", "query", "Answer", "Act", "Tool_Call")
TAGS = [f"<{slash}{name}>" for slash in ("", "/") for name in NAMES]
ODD = ["< answer >", "< act >", "<answer", "<act", "<|im_end|>", "</s>", "\n", "x", "<", ">"]
JSON = ['"', "{", "}", "[", "]", ":", ",", "\\u", '"arguments"', "NaN", "1e999", "-0"]
JSON += ['{"name": "search", "arguments": {"query": "a"}}', '{"name": "add", "arguments": {}}']
SOUP = st.lists(
    st.one_of(st.sampled_from([*TAGS, *ODD, *JSON]), st.text(max_size=6)), max_size=16
).map("".join)
"""Tags, broken ones, those of other systems, and text."""
PASSAGES = st.lists(
    st.builds(Passage, id=st.just("p"), text=SOUP, title=st.one_of(st.just(""), SOUP)), max_size=4
)


def characters(max_tokens: int) -> TokenBudget:
    """One token per character: every cut is visible."""
    return TokenBudget(max_tokens, len, lambda text, limit: text[: max(limit, 0)])
