"""Exports to Google Slides: a PPTX is uploaded to Drive, which converts it.

That needs the file of a service account (EPHEMERA_SLIDES_GOOGLE_CREDENTIALS): its key signs a request for an
access token, and the token uploads the file. Without one, exports to Google are refused at once.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec

from ephemera.errors import EphemeraError, JobFailed
from ephemera_services.slides.document_text import PPTX

NEEDS_CREDENTIALS = (
    "Exports to Google Slides need the credentials of a Google service account, which are not configured "
    "(EPHEMERA_SLIDES_GOOGLE_CREDENTIALS). PPTX and PDF work without."
)
_SCOPE = "https://www.googleapis.com/auth/drive.file"
_UPLOAD = "https://www.googleapis.com/upload/drive/v3/files"
_SLIDES = "application/vnd.google-apps.presentation"
_BOUNDARY = "ephemera-slides-part"


class _Account(msgspec.Struct):
    """The used fields of a service account's file; tests set `upload_uri`."""

    client_email: str
    private_key: str
    token_uri: str
    upload_uri: str = _UPLOAD


class GoogleFailed(EphemeraError):
    """Google did not answer, or answered with an error."""


async def upload_to_google(credentials: str | None, title: str, file: bytes) -> str:
    """Upload a PPTX as Google Slides; its URL."""
    if credentials is None:
        raise JobFailed(NEEDS_CREDENTIALS)
    try:
        key_file = await asyncio.to_thread(Path(credentials).read_bytes)
        account = msgspec.json.decode(key_file, type=_Account)
    except (OSError, msgspec.DecodeError):
        raise JobFailed("The file with Google's credentials cannot be read.") from None
    async with httpx.AsyncClient(timeout=60) as http:
        token = (await _post(http, account.token_uri, data=_grant(account)))["access_token"]
        created = await _post(
            http,
            f"{account.upload_uri}?uploadType=multipart&fields=id,webViewLink",
            content=_body(title, file),
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": f"multipart/related; boundary={_BOUNDARY}",
            },
        )
    return str(created.get("webViewLink") or f"https://docs.google.com/presentation/d/{created['id']}/edit")


def _grant(account: _Account) -> dict[str, str]:
    now = int(time.time())
    claims = {"iss": account.client_email, "scope": _SCOPE, "aud": account.token_uri}
    assertion = jwt.encode({**claims, "iat": now, "exp": now + 600}, account.private_key, algorithm="RS256")
    return {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}


def _body(title: str, file: bytes) -> bytes:
    about = msgspec.json.encode({"name": title, "mimeType": _SLIDES})
    return (
        f"--{_BOUNDARY}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode()
        + about
        + f"\r\n--{_BOUNDARY}\r\nContent-Type: {PPTX}\r\n\r\n".encode()
        + file
        + f"\r\n--{_BOUNDARY}--\r\n".encode()
    )


async def _post(http: httpx.AsyncClient, url: str, **request: Any) -> Any:
    try:
        reply = await http.post(url, **request)
    except httpx.HTTPError as problem:
        raise GoogleFailed(f"Google did not answer: {type(problem).__name__}") from None
    if reply.status_code in (400, 401, 403):
        raise JobFailed(f"Google refused the credentials or the upload ({reply.status_code}).")
    if reply.status_code != httpx.codes.OK:
        raise GoogleFailed(f"Google answered {reply.status_code}")
    return reply.json()
