"""A service's web page: one document, and its scripts and style sheets with content hashes in their names.

The browser revalidates the document on each visit (usually a 304); the files it names are immutable and
cached for a year.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from ephemera_services.runtime.problem_documents import problem

_TYPES = {"css": "text/css", "js": "text/javascript"}
_POLICY = (
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
_ASSET = re.compile(r'"static/([a-z_]+)\.(css|js)"')
_IMMUTABLE = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}


def web_page_router(service: str) -> APIRouter:
    """Return the routes of a service's page: `page/index.html`, and the files it names as `static/...`."""
    folder = files(f"ephemera_services.{service}").joinpath("page")
    assets = {}
    document = folder.joinpath("index.html").read_text("utf-8")
    for name, kind in sorted(set(_ASSET.findall(document))):
        content = folder.joinpath(f"{name}.{kind}").read_bytes()
        hashed = f"{name}.{hashlib.sha256(content).hexdigest()[:12]}.{kind}"
        assets[hashed] = content
        document = document.replace(f'"static/{name}.{kind}"', f'"static/{hashed}"')
    encoded = document.encode()
    etag = f'"{hashlib.sha256(encoded).hexdigest()[:24]}"'
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def index(request: Request) -> Response:
        """The document."""
        headers = {"etag": etag, "cache-control": "public, no-cache", "content-security-policy": _POLICY}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(encoded, media_type="text/html", headers=headers)

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        """A script or a style sheet."""
        if name not in assets:
            raise problem(404, "There is no such file.")
        return Response(assets[name], media_type=_TYPES[name.rpartition(".")[2]], headers=_IMMUTABLE)

    return router
