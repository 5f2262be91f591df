"""Web search by Exa as a retriever: settings and cache (`client`), requests and answers (`wire`).

Imports nothing: the retriever `exa` is made by its registered name. Needs a key in `EXA_API_KEY`,
or a cache that was recorded with one.
"""
