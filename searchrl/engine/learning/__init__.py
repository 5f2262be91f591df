"""The update: packing, the learner, checkpoints, processes that train together. Imports nothing."""
