"""Exports of a presentation: PPTX by python-pptx, PDF by reportlab, and Google Slides.

For Google Slides a PPTX is uploaded to Drive, which converts it. That needs the file of a service account
(EPHEMERA_SLIDES_GOOGLE_CREDENTIALS): its key signs a request for an access token, and the token uploads the
file. Without one, exports to Google are refused when they are requested.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec

from ephemera.errors import EphemeraError, JobFailed

PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
PDF = "application/pdf"

_LATIN = "Helvetica"
_JAPANESE = "HeiseiKakuGo-W5"  # reportlab has it without a file; viewers have the glyphs
_WIDE = (960, 540)  # points: 16:9


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A slide to render."""

    title: str
    bullets: list[str]
    notes: str
    sources: list[str]


def render_pptx(title: str, pages: Sequence[Page]) -> bytes:
    """Render a PPTX with speaker notes."""
    from pptx import Presentation
    from pptx.util import Pt

    deck = Presentation()
    deck.core_properties.title = _plain(title)[:255]
    deck.slide_width, deck.slide_height = Pt(_WIDE[0]), Pt(_WIDE[1])
    for page in pages:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        heading, body = slide.shapes.title, slide.placeholders[1]
        heading.left, heading.top, heading.width, heading.height = Pt(48), Pt(30), Pt(864), Pt(90)
        body.left, body.top, body.width, body.height = Pt(48), Pt(130), Pt(864), Pt(370)
        heading.text = _plain(page.title)
        frame = body.text_frame
        frame.word_wrap = True
        for number, bullet in enumerate(page.bullets):
            paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
            paragraph.text = _plain(bullet)
            paragraph.font.size = Pt(20)
        if page.notes:
            slide.notes_slide.notes_text_frame.text = _plain(page.notes)
    file = BytesIO()
    deck.save(file)
    return file.getvalue()


def render_pdf(title: str, pages: Sequence[Page]) -> bytes:
    """Render a PDF with one page per slide."""
    from reportlab.lib.enums import TA_LEFT
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import KeepInFrame, PageBreak, Paragraph, SimpleDocTemplate, Spacer

    file = BytesIO()
    document = SimpleDocTemplate(
        file, pagesize=_WIDE, title=_plain(title)[:255], leftMargin=48, rightMargin=48, topMargin=40,
        bottomMargin=30,
    )  # fmt: skip
    font = _font([title, *(text for page in pages for text in (page.title, *page.bullets))])
    heading = ParagraphStyle("heading", fontName=font, fontSize=30, leading=36, alignment=TA_LEFT)
    point = ParagraphStyle("point", fontName=font, fontSize=18, leading=24, leftIndent=18, spaceAfter=8)
    small = ParagraphStyle("small", fontName=font, fontSize=9, leading=11, textColor="#666666")
    flow: list[Any] = []
    for number, page in enumerate(pages):
        if number:
            flow.append(PageBreak())
        body = [Paragraph(_marked(page.title), heading), Spacer(1, 18)]
        body += [Paragraph(_marked(bullet), point, bulletText="•") for bullet in page.bullets]
        if page.sources:
            body.append(Paragraph(_marked("Sources: " + ", ".join(page.sources)), small))
        flow.append(KeepInFrame(_WIDE[0] - 110, _WIDE[1] - 90, body, mode="shrink"))
    document.build(flow)
    return file.getvalue()


def _font(texts: Sequence[str]) -> str:
    """A font with the characters of the texts, as far as possible without font files."""
    from reportlab.lib.fonts import tt2ps  # noqa: F401 - reportlab's fonts must be set up first
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont

    if all(ord(character) < 0x2030 for text in texts for character in text):
        return _LATIN
    pdfmetrics.registerFont(UnicodeCIDFont(_JAPANESE))
    return _JAPANESE


def _marked(text: str) -> str:
    """Escape a text for reportlab's paragraphs, which are XML."""
    return escape(_plain(text))


def _plain(text: str) -> str:
    """Remove characters that XML does not allow."""
    return "".join(
        each for each in text if each in "\t\n" or (each >= " " and not 0xD800 <= ord(each) <= 0xDFFF)
    )


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
