"""How a criterion looks at a subject: effects, other processes, places. Imports nothing."""
