"""The lowest layer: episodes, trajectories of tokens and the mathematics; imports nothing here."""
