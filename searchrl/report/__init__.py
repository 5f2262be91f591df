"""The report of a run: a folder of HTML that opens from disk. Runs no code of the run. No torch."""
