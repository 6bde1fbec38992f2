"""The settings of a redis-py connection, as the wire takes them."""

from __future__ import annotations

import re
from typing import Any

from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import Connection, DefaultParser, SSLConnection, UnixDomainSocketConnection
from redis.auth.token import TokenInterface
from redis.credentials import StreamingCredentialProvider
from redis.exceptions import RedisError
from redis.observability import get_observability_instance

from ephemera.wire import Address, CredentialProvider, Credentials, Target, TlsFiles

CONNECTION_CLASSES = (Connection, SSLConnection, UnixDomainSocketConnection)
"""Those that the wire can stand in for."""
_NO_LIMIT = 365 * 86400.0  # seconds


def target_of(template: Any) -> Target | None:
    """Where a connection of redis-py's would connect to, or None if the wire cannot do what it does."""
    if not _is_supported(template):
        return None
    try:
        tls = TlsFiles(context=template.ssl_context.get()) if type(template) is SSLConnection else None
    except (OSError, RedisError):
        return None  # redis-py says what is wrong with its TLS options
    is_unix = type(template) is UnixDomainSocketConnection
    address = Address("", 0, template.path) if is_unix else Address(template.host, int(template.port))
    return Target(
        kind="standalone",
        addresses=(address,),
        credentials=Credentials(template.username or None, template.password or None),
        database=int(template.db or 0),
        tls=tls,
        client_name=template.client_name or "ephemera",
        timeout=template.socket_timeout or _NO_LIMIT,
        connect_timeout=template.socket_connect_timeout or _NO_LIMIT,
        protocol=2 if template.protocol == 2 else 3,
    )


def _is_supported(template: Any) -> bool:
    """Whether the connection is of redis-py's own, without hooks into its bytes or its handshake."""
    return (
        type(template) in CONNECTION_CLASSES
        and type(template._parser) is DefaultParser
        and type(template.encoder).__module__ == "redis._parsers.encoders"
        and is_known_hook(template.redis_connect_func)
        and not isinstance(template.credential_provider, StreamingCredentialProvider)
        and re.fullmatch("[!-~]*", template.client_name or "") is not None
        and get_observability_instance().get_provider_manager() is None
    )


def driver_info_of(template: Any) -> list[tuple[str, ...]]:
    """The commands by which a connection names its library to the server."""
    driver = template.driver_info
    facts = {} if driver is None else {"LIB-NAME": driver.formatted_name, "LIB-VER": driver.lib_version}
    return [("CLIENT", "SETINFO", name, value) for name, value in facts.items() if value]


def is_known_hook(hook: Any) -> bool:
    """Whether a `redis_connect_func` is none, or the one by which a cluster reads from replicas."""
    return hook is None or getattr(hook, "__func__", None) is RedisCluster.on_connect


def credentials_of(template: Any) -> CredentialProvider | None:
    """The wire's form of a connection's credential provider."""
    provider = template.credential_provider
    if provider is None:
        return None

    async def credentials() -> Credentials:
        found = await provider.get_credentials_async()
        if isinstance(found, TokenInterface):
            return Credentials(found.try_get("oid"), found.get_value())
        return Credentials(None, found[0]) if len(found) == 1 else Credentials(found[0], found[1])

    return credentials
