"""Figures of finished episodes: those of a step, an evaluation, its whole table."""
