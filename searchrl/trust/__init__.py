"""Trust: what a folder from a stranger may do, which is nothing but be read.

`needs` finds what is not known as harmless, `permission` decides whether it is used, `folders`
keeps reads and writes inside a run folder, `secrets` takes keys out of texts, `texts` makes foreign
text harmless for a terminal.
"""
