"""What a policy without tokens learns with: `gae` are advantages, `ppo` the algorithm."""
