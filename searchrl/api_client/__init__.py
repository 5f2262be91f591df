"""Asking and answering over HTTP, calls with a time limit: the names that packages may import.

A model behind an OpenAI-compatible address is a `Client`, any other server that takes JSON a
`Server`; what was answered is kept in a `JsonCache`. `call_together` makes several calls at once.
`make_http_server` has limits against strangers; `redact` takes secrets out of texts.
"""

from searchrl.api_client.cache import JsonCache
from searchrl.api_client.client import Client
from searchrl.api_client.exchange import Message, Reply, Request
from searchrl.api_client.server import Server, read_key
from searchrl.config.endpoint import EndpointConfig
from searchrl.tool_calls import Raised, call_together
from searchrl.trust.connections import make_http_server
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
    "make_http_server",
    "read_key",
    "redact",
]
