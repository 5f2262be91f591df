"""Parts of tests: episodes, policies, tags, hard texts, subjects, surroundings."""
