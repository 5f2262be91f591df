"""The training of networks that decide: `loop` from top to bottom, and the run's `folder`."""
