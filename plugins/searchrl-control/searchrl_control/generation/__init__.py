"""Questions for training, made of passages: `written`. Imports nothing."""
