"""The engine: policy, generators, rollout driver, packing, learner, checkpoints.

Importing this package imports nothing; the modules that need torch say so themselves.
"""
