"""What authors build tests with: episodes, policies, tags, hard texts. Imports nothing."""
