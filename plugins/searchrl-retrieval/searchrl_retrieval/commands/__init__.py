"""The commands of this package, one module each; `choice` is what they share. Imports nothing."""
