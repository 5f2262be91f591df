"""What samples tokens: the generator contract and its implementations. Imports nothing."""
