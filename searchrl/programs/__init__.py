"""Programs: training, evaluation, `sft`, the agent, play, the benchmark. Imports nothing."""
