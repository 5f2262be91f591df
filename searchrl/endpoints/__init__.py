"""Servers that are asked over HTTP: one way of sending, and one client for models.

Owns no names of its own. `client` is the door to OpenAI-compatible endpoints, `lines` the one for
retrievers that ask other servers; both send through `sending`. Callers: the endpoint policy of
`searchrl eval`, and the retriever `http`.
"""
