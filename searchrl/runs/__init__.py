"""Runs afterwards: listed, exported, described, published. Imports nothing."""
