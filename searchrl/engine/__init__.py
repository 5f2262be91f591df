"""The engine: policy, generators, rollout driver, packing, learner, checkpoints (floor 2).

Importing this package imports nothing; the modules that need torch say so themselves.
"""
