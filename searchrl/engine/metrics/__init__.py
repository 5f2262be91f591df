"""What is read off finished episodes: the figures of a step, an evaluation, its whole table."""
