"""How a criterion looks at a plugin from outside: surroundings and places."""
