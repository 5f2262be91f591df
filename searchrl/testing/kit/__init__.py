"""What tests are built with: episodes, policies, tags, hard texts, subjects, surroundings."""
