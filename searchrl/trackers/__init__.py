"""Trackers: where metrics go besides the run folder's own metrics.jsonl. None by default."""
