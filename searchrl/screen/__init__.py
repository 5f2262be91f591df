"""What a person sees: tables, transcripts, the console of a run. Imports nothing."""
