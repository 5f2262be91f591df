"""Preparation of a program: the plan, what a run hands on, the session."""
