"""Plans: graphs of queries, how they are written, read, shown and drawn."""
