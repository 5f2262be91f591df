"""Asking servers over HTTP: the names that packages may import.

A model behind an OpenAI-compatible address is a `Client` (its settings: `EndpointConfig` of
`searchrl.config.endpoint`), any other server that takes JSON a `Server`. Both send through the
official `openai` client, which is loaded with the first of them; what was answered is kept in a
`JsonCache`.
"""

from searchrl.api_client.cache import JsonCache
from searchrl.api_client.client import Client
from searchrl.api_client.exchange import Finish, Message, Reply, Request
from searchrl.api_client.server import Refused, Server, read_key
from searchrl.contracts import Traffic

__all__ = [
    "Client",
    "Finish",
    "JsonCache",
    "Message",
    "Refused",
    "Reply",
    "Request",
    "Server",
    "Traffic",
    "read_key",
]
