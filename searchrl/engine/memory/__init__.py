"""What a run will take in memory, before and after. Imports nothing."""
