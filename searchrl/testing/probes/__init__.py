"""How a criterion looks at a plugin from outside: effects, other processes, places."""
