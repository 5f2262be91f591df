"""The commands `searchrl control …`: flags, and the order in which things are said.

`control` is the group, `sequences`, `compare` and `questions` are its commands, `surroundings` what
they share. What is measured is in `comparison`, what is made in `generation`. Imports nothing.
"""
