"""Asking servers over HTTP, and calls with a time limit: the names that packages may import.

A model behind an OpenAI-compatible address is a `Client`, any other server that takes JSON a
`Server`; what was answered is kept in a `JsonCache`. `call_together` makes several calls at once.
"""

from searchrl.api_client.cache import JsonCache
from searchrl.api_client.client import Client
from searchrl.api_client.exchange import Message, Reply, Request
from searchrl.api_client.server import Server, read_key
from searchrl.config.endpoint import EndpointConfig
from searchrl.tool_calls import Raised, call_together
from searchrl.trust.secrets import redact

__all__ = [
    "Client",
    "EndpointConfig",
    "JsonCache",
    "Message",
    "Raised",
    "Reply",
    "Request",
    "Server",
    "call_together",
    "read_key",
    "redact",
]
