"""What is done with runs afterwards: listed, exported, described, published. Imports nothing."""
