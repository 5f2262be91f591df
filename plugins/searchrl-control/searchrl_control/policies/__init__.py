"""Networks that decide: `networks` are linear, MLP and GRU, `inputs` is what they read."""
