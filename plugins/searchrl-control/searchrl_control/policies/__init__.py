"""Networks that decide: `space` is what they see and say, `inputs` what they read of it, `typical`
what is usual, `networks` are linear, MLP and GRU. Imports nothing.
"""
