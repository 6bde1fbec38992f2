"""The URL of a store's server as Celery's broker takes it, and why a cluster is refused."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from ephemera.errors import InvalidUrl
from ephemera.patterns.jobs._runtime import NO_CLUSTER
from ephemera.wire import Credentials, Target, parse_url


class Broker(NamedTuple):
    """What Celery is configured with to reach a server."""

    url: str
    transport: dict[str, Any]
    tls: dict[str, Any] | None


def broker_of(url: str) -> Broker:
    """The broker on the server of a URL; `InvalidUrl` for a cluster, which kombu cannot use."""
    target = parse_url(url)
    if target.kind == "cluster":
        raise InvalidUrl(NO_CLUSTER)
    if target.kind == "sentinel":
        return Broker(_sentinels(target), _sentinel_options(target), _tls(target))
    (address,), who = target.addresses, _who(target.credentials)
    if address.path:
        return Broker(f"redis+socket://{who}{address.path}?virtual_host={target.database}", {}, None)
    scheme = "rediss" if target.tls else "redis"
    return Broker(f"{scheme}://{who}{address}/{target.database}", {}, _tls(target))


def _sentinels(target: Target) -> str:
    who = _who(target.credentials)
    return ";".join(f"sentinel://{who}{address}/{target.database}" for address in target.addresses)


def _sentinel_options(target: Target) -> dict[str, Any]:
    asking: dict[str, Any] = {}
    if target.sentinel_credentials.user:
        asking["username"] = target.sentinel_credentials.user
    if target.sentinel_credentials.password:
        asking["password"] = target.sentinel_credentials.password
    if (tls := _tls(target)) is not None:
        asking |= {"ssl": True, **tls}  # broker_use_ssl is for the master alone
    return {"master_name": target.master, **({"sentinel_kwargs": asking} if asking else {})}


def _who(credentials: Credentials) -> str:
    if credentials.user is None and credentials.password is None:
        return ""
    return f"{quote(credentials.user or '', safe='')}:{quote(credentials.password or '', safe='')}@"


def _tls(target: Target) -> dict[str, Any] | None:
    if target.tls is None:
        return None
    import ssl

    files = {
        "ssl_ca_certs": target.tls.ca,
        "ssl_certfile": target.tls.cert,
        "ssl_keyfile": target.tls.key,
    }
    return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **{name: path for name, path in files.items() if path}}
