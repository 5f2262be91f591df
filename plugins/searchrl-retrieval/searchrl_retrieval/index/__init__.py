"""Index folders: how a retriever keeps what it has computed of a corpus.

`folder` says what a retriever must do to be kept, and opens a folder; `manifest` is what a folder
says of itself, `passages` its corpus, `build` makes one, `places` finds or makes the one of a
corpus. Imports nothing.
"""
