"""The subcommands of `searchrl`, one per module, `train` and `sft` together. Imports nothing."""
