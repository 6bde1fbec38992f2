"""A service's web page: its documents, and their scripts and style sheets with content hashes in their names.

The browser revalidates a document on each visit (usually a 304); the files it names are immutable and
cached for a year.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from ephemera_services.runtime.problem_documents import problem

_TYPES = {"css": "text/css", "js": "text/javascript"}
_POLICY = (
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_ASSET = re.compile(r'"static/([a-z_]+)\.(css|js)"')
_IMMUTABLE = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}


def web_page_router(service: str, *more: str) -> APIRouter:
    """Return the routes of a service's page: `page/index.html`, and the files it names as `static/...`.

    `more` are documents beside it: `admin` is `page/admin.html`, at `/admin`.
    """
    folder = files(f"ephemera_services.{service}").joinpath("page")
    assets: dict[str, bytes] = {}
    router = APIRouter(include_in_schema=False)
    for path, name in (("/", "index"), *((f"/{name}", name) for name in more)):
        document = folder.joinpath(f"{name}.html").read_text("utf-8")
        for asset, kind in sorted(set(_ASSET.findall(document))):
            content = folder.joinpath(f"{asset}.{kind}").read_bytes()
            hashed = f"{asset}.{hashlib.sha256(content).hexdigest()[:12]}.{kind}"
            assets[hashed] = content
            document = document.replace(f'"static/{asset}.{kind}"', f'"static/{hashed}"')
        router.add_api_route(path, _serve_document(document.encode()))

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        """A script or a style sheet."""
        if name not in assets:
            raise problem(404, "There is no such file.")
        return Response(assets[name], media_type=_TYPES[name.rpartition(".")[2]], headers=_IMMUTABLE)

    return router


def _serve_document(encoded: bytes) -> Callable[[Request], Awaitable[Response]]:
    etag = f'"{hashlib.sha256(encoded).hexdigest()[:24]}"'

    async def document(request: Request) -> Response:
        """The document."""
        headers = {"etag": etag, "cache-control": "public, no-cache", "content-security-policy": _POLICY}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(encoded, media_type="text/html", headers=headers)

    return document
