"""Texts that a model might write, and budgets, for the tests of all protocols."""

from __future__ import annotations

from hypothesis import strategies as st

from searchrl.contracts import TokenBudget


def make_soup(names: str, *pieces: str) -> st.SearchStrategy[str]:
    """Texts of opening and closing tags of these names, broken tags, other pieces and anything."""
    tags = [f"<{slash}{name}>" for slash in ("", "/") for name in names.split()]
    ends = ["<|im_end|>", "</s>", "\n", "x", "<", ">"]
    piece = st.one_of(st.sampled_from([*tags, *ends, *pieces]), st.text(max_size=6))
    return st.lists(piece, max_size=16).map("".join)


def characters(max_tokens: int) -> TokenBudget:
    """One token per character: every cut is visible."""
    return TokenBudget(max_tokens, len, lambda text, limit: text[: max(limit, 0)])
