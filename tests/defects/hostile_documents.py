"""Small files that are costly to read: each is a kilobyte to a few hundred, built here."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'


def archive(**parts: bytes) -> bytes:
    """A ZIP file with these parts."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as made:
        for name, content in parts.items():
            made.writestr(name, content)
    return file.getvalue()


def docx(body: str, prolog: str = "") -> bytes:
    """A DOCX with this body."""
    xml = f"{prolog}<w:document {_W}><w:body>{body}</w:body></w:document>"
    return archive(**{"word/document.xml": xml.encode()})


def pptx(*slides: str) -> bytes:
    """A PPTX with these shapes on its slides."""
    parts = {
        f"ppt/slides/slide{number}.xml": f"<a:sld {_A}>{slide}</a:sld>".encode()
        for number, slide in enumerate(slides, 1)
    }
    return archive(**{"ppt/presentation.xml": b"<p/>"}, **parts)


def pdf(*objects: bytes) -> bytes:
    """A PDF with these objects, numbered from 1; the first is its root."""
    made = bytearray(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        made += b"%010d 00000 n \n" % place
    made += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(made)


def stream(data: bytes) -> bytes:
    """A compressed stream."""
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)


def pages_sharing_a_stream(number: int, content: bytes) -> bytes:
    """A PDF whose pages all draw the same stream."""
    font = b"<< /Font << /F 4 0 R >> >>"
    page = b"<< /Type /Page /Parent 2 0 R /Contents 3 0 R /Resources %s /MediaBox [0 0 9 9] >>" % font
    kids = b" ".join(b"%d 0 R" % (5 + each) for each in range(number))
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (number, kids),
        stream(content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *[page] * number,
    )


def _one_page(content: bytes, resources: bytes = b"<< >>", *more: bytes) -> bytes:
    return pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources %s /MediaBox [0 0 9 9] >>" % resources,
        content,
        *more,
    )


def _entity_bomb() -> bytes:
    layers = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return docx("<w:p><w:r><w:t>&e9;</w:t></w:r></w:p>", f'<!DOCTYPE d [<!ENTITY e0 "lol">{layers}]>')


def _lying_zip_bomb() -> bytes:
    """The archive says that 20 MB of empty paragraphs are 900 KB."""
    made = docx("<w:p/>" * 3_400_000)
    length = len(f"<w:document {_W}><w:body></w:body></w:document>") + 6 * 3_400_000
    return made.replace(length.to_bytes(4, "little"), (900_000).to_bytes(4, "little"))


def _page_loop() -> bytes:
    return pdf(b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Count 3 /Kids [2 0 R 2 0 R 2 0 R] >>")


def _form_loop() -> bytes:
    resources = b"<< /XObject << /X 5 0 R >> >>"
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources %s" % resources
    body = b"<< /Length 11 %s >>\nstream\n/X Do /X Do\nendstream" % form
    return _one_page(stream(b"/X Do /X Do"), resources, body)


def _form_tree() -> bytes:
    """Each form draws the next one ten times: 10^9 forms."""

    def form(number: int) -> bytes:
        drawn = b"/X Do " * 10
        inner = b"<< /XObject << /X %d 0 R >> >>" % number
        head = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources %s" % inner
        return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(drawn), head, drawn)

    forms = [form(6 + each) for each in range(9)]
    return _one_page(stream(b"/X Do " * 10), b"<< /XObject << /X 5 0 R >> >>", *forms)


def _many_streams() -> bytes:
    """A page of four streams of 60 MB."""
    streams = [stream(b" " * 60_000_000)] * 4
    return _one_page(b"[5 0 R 6 0 R 7 0 R 8 0 R]", b"<< >>", *streams)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "docx-empty-paragraphs": lambda: docx("<w:p/>" * 3_400_000),
    "docx-zip-bomb": lambda: docx("<w:p><w:r><w:t>" + " " * 50_000_000 + "</w:t></w:r></w:p>"),
    "docx-lying-about-its-size": _lying_zip_bomb,
    "docx-huge-table": lambda: docx("<w:tbl>" + "<w:tr><w:tc><w:p/></w:tc></w:tr>" * 900_000 + "</w:tbl>"),
    "docx-entities": _entity_bomb,
    "docx-deep": lambda: docx("<w:p>" * 500_000 + "</w:p>" * 500_000),
    "docx-one-tag": lambda: docx("<w:p a='" + "x" * 20_000_000 + "'/>"),
    "docx-many-files": lambda: archive(**{"word/document.xml": b"", **{f"{n}": b"" for n in range(9_000)}}),
    "pptx-empty-paragraphs": lambda: pptx("<a:p/>" * 3_400_000),
    "pptx-many-slides": lambda: pptx(*["<a:p/>"] * 1_500),
    "pptx-slides-unpack": lambda: pptx(*["<a:p>" + " " * 900_000 + "</a:p>"] * 60),
    "pdf-shared-stream": lambda: pages_sharing_a_stream(2_000, b"(a) Tj " * 14_000),
    "pdf-shared-by-fewer": lambda: pages_sharing_a_stream(900, b"(a) Tj " * 14_000),
    "pdf-stream-bomb": lambda: _one_page(stream(b" " * 80_000_000)),
    "pdf-many-streams": _many_streams,
    "pdf-page-loop": _page_loop,
    "pdf-form-loop": _form_loop,
    "pdf-form-tree": _form_tree,
    "pdf-deep-array": lambda: _one_page(b"[" * 400_000),
    "pdf-many-pages": lambda: pages_sharing_a_stream(30_000, b"(a) Tj"),
    "pdf-previous-loop": lambda: b"%PDF-1.7\nxref\n0 0\ntrailer\n<< /Prev 9 >>\nstartxref\n9\n%%EOF",
}
"""Documents by name; each is built when it is called for."""
