"""Trust: a folder from a stranger may be read, and decides nothing else."""
