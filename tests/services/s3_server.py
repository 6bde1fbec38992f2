"""A bucket on loopback, with as much of the API of S3 as the league's object store uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET

BUCKET = "pages"


class Bucket(ThreadingHTTPServer):
    """Its objects by key, each with the time at which it was written."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.unsigned = 0
        """Requests without a signature."""

    @property
    def variables(self) -> dict[str, str]:
        """What a client's environment has, as for any store that is compatible with S3."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_address[1]}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_REGION": "us-east-1",
        }


class _Handler(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self.server.objects[self._key()] = (self._body(), datetime.now(UTC))
        self._answer(200, ETag=self._etag())

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listed(query.get("prefix", [""])[0]))
        elif self._key() in self.server.objects:
            content, written = self.server.objects[self._key()]
            self._answer(
                200, content, **{"ETag": self._etag(), "Last-Modified": format_datetime(written, True)}
            )
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def do_POST(self) -> None:  # the deletion of several objects
        names = "{*}Object/{*}Key"
        deleted = [each.text or "" for each in ET.fromstring(self._body()).iterfind(names)]
        for key in deleted:
            self.server.objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in deleted)
        self._answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _listed(self, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{key}</Key><LastModified>{written:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<ETag>x</ETag><Size>{len(content)}</Size></Contents>"
            for key, (content, written) in sorted(self.server.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _etag(self) -> str:
        return f'"{md5(self.server.objects[self._key()][0], usedforsecurity=False).hexdigest()}"'

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["content-length"]))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.server.unsigned += not self.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256")
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep quiet."""


@contextmanager
def running_bucket() -> Iterator[Bucket]:
    """Run it in a thread."""
    with Bucket() as bucket:
        threading.Thread(target=bucket.serve_forever, daemon=True).start()
        yield bucket
        bucket.shutdown()
