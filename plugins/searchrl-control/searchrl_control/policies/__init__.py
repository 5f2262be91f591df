"""Networks that decide: `space` is what they see and say, `networks` are linear, MLP and GRU,
`typical` is what is usual of a sign. Imports nothing.
"""
