"""The language model: loading, rendering text to ids, and log-probs of tokens. Imports nothing."""
