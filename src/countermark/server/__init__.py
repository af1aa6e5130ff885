"""The server: events come in by HTTP, in our own form and OpenTelemetry's, and sessions are read from it."""

from countermark.server.limits import Limits
from countermark.server.service import DEFAULT_HOST, DEFAULT_PORT, ServerSettings
from countermark.server.serving import serve
from countermark.server.tokens import FILE as TOKENS_FILE
from countermark.server.tokens import SCOPES, Scope, Token, add_token, read_tokens, revoke_token

__all__ = [
    "DEFAULT_HOST", "DEFAULT_PORT", "SCOPES", "TOKENS_FILE", "Limits", "Scope", "ServerSettings", "Token", "add_token", "read_tokens",
    "revoke_token", "serve",
]  # fmt: skip
