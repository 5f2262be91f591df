"""Networks that decide: `space` is what they see and say, `networks` are linear, MLP and GRU,
`playing` plays many episodes at once. Imports nothing.
"""
