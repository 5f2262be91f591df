"""What a policy without tokens learns with, beside the algorithms of the core. Imports nothing."""
