"""The criteria of each kind of plugin, and `trials`: what is the same for all. Imports nothing."""
