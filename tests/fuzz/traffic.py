"""Requests to all operations of a service's OpenAPI document, several at a time: GET, POST, event streams.

Bodies are made from their schemas. Most are refused, after the service has looked at sessions and limits.
What no document describes, WebSockets and gRPC, is called in turn with them (`Call`).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, TypeAlias

import httpx

THREADS = 3
FEWEST = 10
"""Requests that each thread sends, however slow the machine is."""
_STREAM_FOR = 0.5  # seconds
_CALLS = 0.15
"""The share of calls among requests, where a service has some."""
_SIGN_IN_EVERY = 0.3  # seconds
_BACK_OFF = 0.05
"""Seconds that a thread waits after a 503, as clients do; quick refusals would use up all requests."""
_METHODS = ("get", "post", "put", "patch", "delete")
_FORMATS = {
    "email": "ann@example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "uri": "http://127.0.0.1:9/",
}


Ids: TypeAlias = Callable[[str], list[str]]
"""Values for a field of a path, by its name."""
Headers: TypeAlias = Mapping[str, str]
Call: TypeAlias = Callable[[Random, Ids, Headers], tuple[int, str]]
"""Another kind of request, with the headers of a signed-in user; its outcome as an HTTP status, and why."""


class Traffic:
    """Requests in some threads until a time has passed; `wrong` has the answers that no service may give."""

    def __init__(
        self, url: str, document: Any, sign_in: Callable[[], Headers], ids: Ids, calls: Sequence[Call] = ()
    ) -> None:
        self._url = url
        self._document = document
        self._sign_in = sign_in
        self._headers = sign_in()
        self._signed_in = time.monotonic()
        self._ids = ids
        self._operations = [
            (method, path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if method in _METHODS
        ]
        self._calls = calls
        self.wrong: list[tuple[str, str, int, str]] = []
        self.unavailable: list[tuple[str, str, str]] = []
        """What was answered by 503, and why."""
        self.answers: Counter[int] = Counter()
        """How many answers had each status."""
        self.called: Counter[str] = Counter()
        """How many calls of each other kind were made."""

    def share(self, *statuses: int) -> float:
        """The share of answers with these statuses."""
        return sum(self.answers[each] for each in statuses) / max(1, self.answers.total())

    @property
    def answered(self) -> int:
        """How many answers were not 503."""
        return self.answers.total() - self.answers[503]

    def run(self, seed: int, seconds: float, most: int, enough: Callable[[], bool] = lambda: True) -> None:
        """Send requests for this long and until it is enough, at most this many, and always some."""
        ends = time.monotonic() + seconds

        def goes_on(sent: int) -> bool:
            return sent < FEWEST or time.monotonic() < ends or not enough()

        threads = [
            threading.Thread(target=self._send_while, args=(Random(seed + number), goes_on, most // THREADS))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send_while(self, random: Random, goes_on: Callable[[int], bool], most: int) -> None:
        with httpx.Client(base_url=self._url, timeout=30) as client:
            sent = 0
            while sent < most and goes_on(sent):
                sent += 1
                if self._calls and random.random() < _CALLS:
                    self._call(random.choice(self._calls), random)
                else:
                    self._send(client, random, *random.choice(self._operations))

    def _call(self, call: Call, random: Random) -> None:
        status, reason = call(random, self._ids, self._headers)
        self.called[call.__name__] += 1
        self._count(status)
        if status >= 500 and status != 503:
            self.wrong.append((call.__name__, "", status, reason))

    def _send(self, client: httpx.Client, random: Random, method: str, path: str, operation: Any) -> None:
        where = "/".join(self._filled(part, random) for part in path.split("/"))
        query = {each["name"]: self._value(each["schema"], random) for each in self._queries(operation)}
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        content = {} if body is None else {"json": self._value(body["schema"], random)}
        try:
            with client.stream(
                method.upper(), where, params=query, headers=self._headers, **content
            ) as answer:
                self._count(answer.status_code)
                if answer.status_code >= 500 and answer.status_code != 503:
                    self.wrong.append((method, where, answer.status_code, answer.read().decode()[:300]))
                    return
                if answer.status_code == 503:
                    self.unavailable.append((method, where, answer.read().decode()[:300]))
                    time.sleep(_BACK_OFF)
                    return
                ends = time.monotonic() + _STREAM_FOR
                for _ in answer.iter_raw():
                    if time.monotonic() > ends:
                        break
        except httpx.ReadTimeout:
            if "event" not in path and "stream" not in path:
                self.wrong.append((method, where, 0, "no answer within 30 s"))
        except httpx.TransportError as problem:
            self.wrong.append((method, where, 0, str(problem)))

    def _count(self, status: int) -> None:
        """Count an answer; some requests end the session of all, so sign in again, now and then."""
        self.answers[status] += 1
        if status == 401 and time.monotonic() > self._signed_in + _SIGN_IN_EVERY:
            self._signed_in = time.monotonic()
            with suppress(AssertionError, KeyError):
                self._headers = self._sign_in()

    def _filled(self, part: str, random: Random) -> str:
        return random.choice(self._ids(part[1:-1])) if part.startswith("{") else part

    def _queries(self, operation: Any) -> Iterator[Any]:
        return (
            each for each in operation.get("parameters", ()) if each["in"] == "query" and each["required"]
        )

    def _value(self, schema: Any, random: Random, depth: int = 0) -> Any:
        """A value that a schema mostly accepts."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return self._value(self._document["components"]["schemas"][name], random, depth)
        if choices := schema.get("enum") or schema.get("examples"):
            return random.choice(choices)
        if either := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            return self._value(either[0], random, depth)
        kind = schema.get("type", "string")
        if kind == "object":
            return {
                name: self._value(each, random, depth + 1)
                for name, each in schema.get("properties", {}).items()
                if name in schema.get("required", ()) or random.random() < 0.3
            }
        if kind == "array":
            return [self._value(schema["items"], random, depth + 1)] if depth < 5 else []
        if kind in ("integer", "number"):
            return schema.get("minimum", 1)
        if kind == "boolean":
            return random.random() < 0.5
        text = _FORMATS.get(schema.get("format", ""), "light of the world")
        return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", 1000)]
