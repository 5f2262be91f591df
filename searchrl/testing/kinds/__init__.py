"""The criteria of each kind of plugin. Imports nothing."""
