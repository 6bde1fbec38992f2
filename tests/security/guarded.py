"""A cache and a queue as in production: each service is a user of its own, with the rules of `ephemera acl`.

On Valkey plainly; on Debian's Redis 7 by TLS alone, with certificates of clients asked for, and so before
PostgreSQL. Every password is a canary: it must be found nowhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import redis
import zstandard

from ephemera import Catalogue, embedded
from ephemera.embedded import Postgres, Valkey
from ephemera.keyspace import SERVER_IDENTITY, Role
from ephemera.operations.configuration import access_rules
from tests.security.tls_postgres import with_tls
from tests.wire.certificates import Authority
from tests.wire.debian_redis import DebianRedis

SYSTEMS = ("identity", "slides", "scripture", "feed", "league")
CANARY = "canary7f3d9a1b"
"""It is in every secret."""


def catalogue_of(system: str) -> Catalogue:
    """What a built-in service declares."""
    found: Catalogue = import_module(f"ephemera_services.{system}.keys").catalogue
    return found


class Guarded(NamedTuple):
    """Servers that let in who has a password, and what they refused."""

    servers: dict[Role, Valkey | DebianRedis]
    tls: str
    """What a URL ends with for TLS; empty without."""
    databases: str
    """The URL of the database NAME."""

    def places(self, system: str) -> dict[str, str]:
        """The environment by which a service finds them."""
        return {
            "EPHEMERA_URL": self.url(system, "cache"),
            "EPHEMERA_QUEUE_URL": self.url(system, "queue"),
            "EPHEMERA_DATABASE_URL": self.databases.replace("NAME", system),
        }

    def url(self, user: str, role: Role) -> str:
        """A server for a user."""
        server = self.servers[role]
        who, database = f"{user}:{CANARY}-{user}-{role}", int(user == "scripture")
        if isinstance(server, DebianRedis):
            return f"rediss://{who}@localhost:{server.tls_port}/{database}{self.tls}"
        return f"redis://{who}@127.0.0.1:{server.port}/{database}"

    def admin(self, role: Role, database: int = 0) -> Any:
        """A client that may do everything, and gives bytes."""
        server = self.servers[role]
        return redis.Redis(port=server.port, db=database, password=server.password)

    def refusals(self) -> list[str]:
        """What was refused to services: where, to whom, and which command or key."""
        return [
            f"{role}: {entry['username']} {entry['reason']} {entry['object']}"
            for role in self.servers
            for entry in self.admin(role).acl_log(100)
            if entry["object"] != "client|setinfo"  # redis-py tells its name, where it may
        ]

    def everything(self) -> bytes:
        """All keys with all that they hold, unpacked."""
        parts: list[bytes] = []
        for role, database in product(self.servers, (0, 1)):
            client = self.admin(role, database)
            for key in client.scan_iter(count=1000):
                parts += [key, *map(_unpacked, _flat(_READING[client.type(key)](client, key)))]
        return b"\n".join(parts)


_READING: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"string": lambda client, key: client.get(key),
    b"hash": lambda client, key: client.hgetall(key),
    b"list": lambda client, key: client.lrange(key, 0, -1),
    b"set": lambda client, key: client.smembers(key),
    b"zset": lambda client, key: client.zrange(key, 0, -1),
    b"stream": lambda client, key: client.xrange(key),
    b"none": lambda *_: b"",
}


def _flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        yield from _flat([*value.keys(), *value.values()])
    elif value is not None:
        for part in value:
            yield from _flat(part)


def _unpacked(value: bytes) -> bytes:
    """A value, and what is in it under zstd or gzip."""
    for begins, unpacking in (
        (b"\x28\xb5\x2f\xfd", zstandard.ZstdDecompressor().decompressobj()),
        (b"\x1f\x8b\x08", zlib.decompressobj(31)),  # gzip, whatever comes after it
    ):
        _, found, packed = value.partition(begins)
        if found:
            return value + unpacking.decompress(begins + packed)
    return value


@contextmanager
def on_valkey(postgres: Postgres) -> Iterator[Guarded]:
    """Two Valkeys, and the suite's PostgreSQL."""
    with (
        embedded.valkey(password=f"{CANARY}-admin") as cache,
        embedded.valkey(password=f"{CANARY}-admin") as queue,
    ):
        guarded = Guarded({"cache": cache, "queue": queue}, "", _databases(postgres, "plainly"))
        _admit(guarded)
        yield guarded


@contextmanager
def on_redis_by_tls(postgres: Postgres, folder: Path) -> Iterator[Guarded]:
    """Two Redis 7 and the suite's PostgreSQL, all of which want to see a certificate."""
    _databases(postgres, "by_tls")
    authority = Authority(folder, "ours")
    certificate, key = authority.certify("service")
    key.chmod(0o600)
    context = authority.server_context("localhost", client_certificates=True)
    with (
        DebianRedis(authority, client_certificates=True) as cache,
        DebianRedis(authority, client_certificates=True) as queue,
        with_tls(postgres.url, context) as port,
    ):
        files = f"sslrootcert={authority.ca}&sslcert={certificate}&sslkey={key}"
        database = f"postgresql://postgres:{CANARY}-sql@localhost:{port}/guarded_by_tls_NAME?sslmode=verify-full&{files}"
        tls = f"?ca={authority.ca}&cert={certificate}&key={key}"
        guarded = Guarded({"cache": cache, "queue": queue}, tls, database)
        _admit(guarded)
        yield guarded


def _databases(postgres: Postgres, how: str) -> str:
    """The URL of the database of a system NAME; all are made."""
    for system in SYSTEMS:
        postgres.database(f"guarded_{how}_{system}")
    return postgres.url.replace("/postgres?", f"/guarded_{how}_NAME?")


def _admit(guarded: Guarded) -> None:
    """Make a user for each service, by the rules that `ephemera acl` prints."""
    for role in guarded.servers:
        admin = guarded.admin(role)
        guarded.admin(role, 1).set(
            SERVER_IDENTITY.key(), "scripture"
        )  # it wants a database that is marked as its own
        for system in SYSTEMS:
            rules = access_rules(
                catalogue_of(system), system, role=role, purposes=("service", "metrics", "tracking")
            )
            admin.execute_command("ACL", "SETUSER", system, *rules.rules(), f">{CANARY}-{system}-{role}")
