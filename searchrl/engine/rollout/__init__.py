"""Episodes: the rollout driver, the task world, prompts, records, drawings. Imports nothing."""
