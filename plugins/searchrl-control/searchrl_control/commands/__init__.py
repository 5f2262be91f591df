"""The commands `searchrl control …`: flags, and the order in which things are said.

`control` is the group with `train`; `sequences`, `compare` and `questions` are its other commands,
`surroundings` what they share. What is measured is in `comparison`, what is made in `generation`.
Imports nothing.
"""
