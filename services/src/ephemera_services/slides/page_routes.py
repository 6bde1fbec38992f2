"""The web page: one document, and a script and a style whose names have the hash of their content."""

from __future__ import annotations

import hashlib
from importlib import resources

from fastapi import APIRouter, Response

from ephemera_services.runtime import problem

router = APIRouter(include_in_schema=False)

_TYPES = {"css": "text/css", "js": "text/javascript"}
_POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"


def _read(name: str) -> bytes:
    return resources.files("ephemera_services.slides.page").joinpath(name).read_bytes()


def _hashed(name: str) -> tuple[str, bytes]:
    content = _read(name)
    stem, _, kind = name.partition(".")
    return f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{kind}", content


_STATIC = dict(_hashed(name) for name in ("slides.js", "slides.css"))


def _document() -> bytes:
    text = _read("index.html").decode()
    for name in _STATIC:
        stem, _, kind = name.split(".")
        text = text.replace(f"static/{stem}.{kind}", f"static/{name}")
    return text.encode()


_INDEX = _document()


@router.get("/")
async def index() -> Response:
    """The page."""
    headers = {"cache-control": "no-cache", "content-security-policy": _POLICY}
    return Response(_INDEX, media_type="text/html", headers=headers)


@router.get("/static/{name}")
async def static(name: str) -> Response:
    """A script or a style, for a year."""
    content = _STATIC.get(name)
    if content is None:
        raise problem(404, "There is no such file.")
    headers = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
    return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)
