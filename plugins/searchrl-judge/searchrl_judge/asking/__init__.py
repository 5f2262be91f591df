"""Asking a model for verdicts: prompts, what is read from replies, and the judges themselves."""
