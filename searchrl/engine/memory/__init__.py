"""Memory of a run: predicted before, measured after. Imports nothing."""
