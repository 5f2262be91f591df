"""The subcommands of `searchrl`, one per module. Imports nothing."""
