"""HTTP clients and servers, and calls with a time limit: the names that packages may import."""

from searchrl.api_client.client import Client
from searchrl.api_client.exchange import Message, Request
from searchrl.api_client.server import Server, read_key
from searchrl.cache import JsonCache
from searchrl.config.endpoint import EndpointConfig
from searchrl.tool_calls import Raised, call_together
from searchrl.trust.connections import HttpServer
from searchrl.trust.secrets import redact

__all__ = [
    "Client",
    "EndpointConfig",
    "HttpServer",
    "JsonCache",
    "Message",
    "Raised",
    "Request",
    "Server",
    "call_together",
    "read_key",
    "redact",
]
