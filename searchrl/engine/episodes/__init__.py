"""Episodes: the rollout driver, the task world, prompts, records and metrics. Imports nothing."""
