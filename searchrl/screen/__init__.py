"""Displays for a person: tables, transcripts, the console of a run. Imports nothing."""
