"""Hostile contents for the keys of a catalogue: those that exist, and those that a service may read next."""

from __future__ import annotations

import itertools
import json
import os
import pickle
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import ormsgpack
import redis
import zstandard

from ephemera.embedded import Valkey
from ephemera.keyspace import Catalogue, Permanent

LAPSE = 3.0
"""Seconds until a key that was written into ends, unless its keyspace is permanent."""
_IDS = ("1", "ann", "00000000-0000-4000-8000-000000000000")
_WRITES = ("SET", "HSET", "ZADD", "SADD", "RPUSH", "XADD")


class _Runs:
    """A pickle of it runs a command."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self._command,)


def hostile_values(command: str) -> list[bytes]:
    """Bytes that no codec of ours wrote, some of which run a command if they are read carelessly."""
    extension = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", command))))
    declared = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb(["os.system", command])))
    pickled = pickle.dumps(_Runs(command))
    wrapped = [ormsgpack.packb(["msgpack", each]) for each in (extension, declared)]
    return [
        *(
            b"",
            b"\0",
            b"\xff\xfe",
            b"null",
            b"{}",
            b"[]",
            b"-1",
            b"nan",
            b"inf",
            b"1e400",
            b"1e300",
            b"9" * 5000,
        ),
        *(
            b"9223372036854775807",
            b"99999999999999999999",
            b"253402300800000",
            b"\xc1",
            b"\xdd\xff\xff\xff\xff",
        ),
        *(b"[" * 100_000, b"\x91" * 100_000, b'{"a":' * 5000, b"x" * 1_000_000, b"\x28\xb5\x2f\xfd\xff\xff"),
        *(
            b'["1",',
            b'["1",{"',
            b'["1",{"user_id":"\\ud800"}]',
            b'["1",[1e308,1e400,null]]',
            b"a\r\nset-cookie: b=c",
        ),
        zstandard.ZstdCompressor().compress(b"[" * 60_000_000),
        *(extension, declared, *wrapped, ormsgpack.packb(["pickle", pickled]), pickled),
        *_celery_messages(pickled),
    ]


def _celery_messages(pickled: bytes) -> list[bytes]:
    """Messages for a queue of Celery: a pickle, and a call of something that is no task of ours."""
    found = []
    for kind, body in (("application/x-python-serialize", pickled), ("application/json", b'[["x"],{},{}]')):
        headers = {"task": "os.system", "id": "1", "lang": "py", "argsrepr": "", "kwargsrepr": ""}
        properties = {
            "body_encoding": "base64", "delivery_tag": "1", "delivery_mode": 2, "priority": 0,
            "delivery_info": {"exchange": "", "routing_key": "x"}, "correlation_id": "1",
        }  # fmt: skip
        message = {
            "body": b64encode(body).decode(), "content-encoding": "binary", "content-type": kind,
            "headers": headers, "properties": properties,
        }  # fmt: skip
        found.append(json.dumps(message).encode())
    return found


class HostileWriter:
    """Writes hostile contents into every declared key and channel of a catalogue on one server, in turn."""

    def __init__(self, server: Valkey, catalogue: Catalogue, random: Random, values: list[bytes]) -> None:
        self._client: Any = redis.Redis.from_url(server.url)
        self._keyspaces = list(catalogue)
        self._turns = itertools.cycle(random.sample(self._keyspaces, len(self._keyspaces)))
        self._random = random
        self._values = values
        self._made: set[bytes] = set()
        self.fields: dict[str, set[str]] = {}
        """Values of key fields that were seen, by the field's name: ids that the service reads."""
        self.done: list[str] = []
        """What was written."""
        self.written: Counter[str] = Counter()
        """How many writes or messages each declared pattern got."""
        self.in_use: Counter[str] = Counter()
        """How many of them went into keys that the service had written."""

    def __enter__(self) -> HostileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def write_some(self, count: int) -> None:
        """Write to the next patterns: into keys that exist, into ones that do not, and into channels."""
        existing = self._learn()
        for keyspace in itertools.islice(self._turns, count):
            self.written[keyspace.pattern] += 1
            if keyspace.kind == "channel":
                self._publish(keyspace)
            elif (key := self._existing_key(keyspace, existing[keyspace.pattern])) is not None:
                self.in_use[keyspace.pattern] += self._is_of_the_service(keyspace, key)
                self._attack(keyspace, key, self._alter if self._random.random() < 0.75 else self._replace)
            else:
                key = self._new_key(keyspace).encode()
                self._made.add(key)
                self._attack(keyspace, key, self._replace)

    def _existing_key(self, keyspace: Any, keys: list[bytes]) -> bytes | None:
        """First one that the service wrote, so that each pattern in use is attacked; later mostly any."""
        if not self.in_use[keyspace.pattern]:
            for key in keys:
                if self._is_of_the_service(keyspace, key):
                    return key
        return self._random.choice(keys) if keys and self._random.random() < 0.7 else None

    def never_written(self) -> set[str]:
        """The declared patterns that got nothing."""
        return {each.pattern for each in self._keyspaces} - set(self.written.copy())

    def foreign_keys(self) -> list[bytes]:
        """The keys of permanent keyspaces that hold another type: nothing but an operator ends them."""
        existing = self._learn()
        return [
            key
            for each in self._keyspaces
            if isinstance(each.lifetime, Permanent)
            for key in existing[each.pattern]
            if self._client.type(key).decode() != each.redis_type
        ]

    def delete(self, keys: list[bytes]) -> None:
        """What an operator does about keys that the log names."""
        for key in keys:
            self._client.delete(key)

    def _learn(self) -> dict[str, list[bytes]]:
        """The keys there are, by their pattern; the values of their fields are remembered."""
        found: dict[str, list[bytes]] = {each.pattern: [] for each in self._keyspaces}
        for key in sorted(self._client.scan_iter(count=1000)):
            for keyspace in self._keyspaces:
                fields = None if keyspace.kind == "channel" else keyspace.parse(key)
                if fields is not None:
                    found[keyspace.pattern].append(key)
                    for name, value in fields.items():
                        self.fields.setdefault(name, set()).add(value)
        return found

    def _is_of_the_service(self, keyspace: Any, key: bytes) -> bool:
        """Whether the service has written a key since we did: what we write ends soon."""
        if isinstance(keyspace.lifetime, Permanent):
            return key not in self._made
        return int(self._client.pttl(key)) > LAPSE * 1000

    def _attack(self, keyspace: Any, key: bytes, write: Callable[[bytes], str]) -> None:
        """Write; what has a declared lifetime ends soon, as it would by its TTL, hours later."""
        self.done.append(f"{key!r}: {write(key)}")
        if not isinstance(keyspace.lifetime, Permanent):
            self._client.pexpire(key, int(LAPSE * 1000), lt=True)

    def _publish(self, keyspace: Any) -> None:
        channel, value = self._new_key(keyspace), self._random.choice(self._values)
        self._client.publish(channel, value)
        self.done.append(f"PUBLISH {channel!r}: {value[:30]!r}")

    def _new_key(self, keyspace: Any) -> str:
        known = {name: [*sorted(self.fields.get(name, ())), *_IDS] for name in keyspace.template.fields}
        return str(keyspace.key(**{name: self._random.choice(values) for name, values in known.items()}))

    def _replace(self, key: bytes) -> str:
        """Delete it, and write another content, mostly of another type."""
        write, value = self._random.choice(_WRITES), self._random.choice(self._values)
        arguments: dict[str, tuple[Any, ...]] = {
            "HSET": (self._random.choice([b"_v", b"field", b"\xff"]), value),
            "ZADD": (self._random.choice(["-inf", "inf", "1e300", "253402300800000"]), value),
            "XADD": (self._random.choice(["*", "18446744073709551615-1"]), b"event", value),
        }
        with suppress(redis.ResponseError):
            self._client.delete(key)
            self._client.execute_command(write, key, *arguments.get(write, (value,)))
        return f"{write} {value[:30]!r}"

    def _alter(self, key: bytes) -> str:
        """Write into it, and keep its type; the service writes too, so it may be another by now."""
        value = self._random.choice(self._values)
        kind = self._client.type(key).decode()
        with suppress(redis.ResponseError):
            overwrite(self._client, key, kind, value, self._random)
        return f"{kind} with {value[:30]!r}"


def overwrite(client: Any, key: bytes | str, kind: str, value: bytes, random: Random) -> None:
    """Write a value into a key, as its Redis type allows."""
    if kind == "hash":
        names = client.hkeys(key)
        chosen = names if random.random() < 0.5 else names[:1]
        client.hset(key, mapping=dict.fromkeys(chosen or [b"field"], value))
    elif kind == "zset":
        client.zadd(key, {value: random.choice([0, -1e300, 1e300, 4e12])})
    elif kind == "set":
        client.sadd(key, value)
    elif kind == "list":
        client.rpush(key, value)
        client.lpush(key, value)
    elif kind == "stream":
        client.xadd(key, {random.choice(["field", "event", "d"]): value})
    elif kind == "string" and random.random() < 0.5:
        whole = client.get(key) or b""
        client.set(key, whole[: random.randrange(len(whole) + 1)] + value[:100], keepttl=True)
    else:
        client.set(key, value, keepttl=True)


def corrupt(server: Valkey, random: Random, values: list[bytes], share: float) -> list[str]:
    """Overwrite a share of all keys, each with other bytes or with another type; returns what was done."""
    done = []
    opened: Any = redis.Redis.from_url(server.url)
    with opened as client:
        for key in sorted(client.scan_iter(count=1000)):
            if random.random() < share:
                kind, value = client.type(key).decode(), random.choice(values)
                with suppress(redis.ResponseError):
                    if random.random() < 0.25:
                        client.delete(key)
                        kind = "string" if kind == "hash" else "hash"
                    overwrite(client, key, kind, value, random)
                done.append(f"{key!r}: {kind} with {value[:30]!r}")
    return done


def plausible_records() -> list[bytes]:
    """Envelopes of our own codecs around numbers that no calculation survives."""
    numbers = [2**63 - 1, -(2**63), 0, -1]
    forms: list[Any] = [msgspec.json, msgspec.msgpack]
    shapes: list[Any] = [
        shape for n in numbers for shape in (n, [n] * 9, ["x" * 40, n, n, [], n, {"a": n}], {"number": n})
    ]
    return [form.encode(["1", shape]) for form in forms for shape in shapes]
