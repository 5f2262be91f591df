"""The training of networks that decide: `networks` are linear, MLP and GRU, `loop` plays and learns
from top to bottom, `folder` is the run's. Imports nothing.
"""
