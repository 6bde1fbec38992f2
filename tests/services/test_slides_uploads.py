"""Documents that cannot be used are refused when they are sent or read, each with a reason that helps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

import psycopg
import pytest
from pypdf import PdfWriter

from ephemera_services.slides.document_text import UnreadableDocument, extract
from tests.services.services import Served
from tests.services.slides_users import FREE, Person


def _pdf(password: str | None = None) -> bytes:
    writer, file = PdfWriter(), BytesIO()
    writer.add_blank_page(200, 200)
    if password is not None:
        writer.encrypt(password, algorithm="AES-256")
    writer.write(file)
    return file.getvalue()


def _archive(**parts: bytes) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "status", "says"),
    [
        ("empty.txt", b"", 422, "empty"),
        ("photo.png", b"\x89PNG\r\n\x1a\n\x00\x00", 415, "PDF, DOCX, PPTX or plain text"),
        ("zeros.txt", b"a\x00b", 415, "NUL bytes"),
        ("locked.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), 422, "encrypted"),
        ("archive.zip", _archive(readme=b"hello"), 415, "not a DOCX"),
    ],
)
def test_what_is_no_document_is_refused(
    anna: Person, name: str, content: bytes, status: int, says: str
) -> None:
    """Empty or of a wrong type: a 4xx that says which."""
    answer = anna.upload(content, name)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert says in answer.json()["detail"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (_pdf("secret"), "The PDF is encrypted; send one without a password."),
        (b"%PDF-1.7\nnothing of a PDF", "The PDF is broken and cannot be read."),
        (_pdf()[:150], "The PDF is broken and cannot be read."),
        (b"PK\x03\x04 and word/document.xml", "The document is broken and cannot be read."),
        (_archive(**{"word/document.xml": b"<a>"}), "The document is broken and cannot be read."),
        (_archive(**{"word/document.xml": b"<a/>"}), "The document contains no text; is it a scan?"),
        (b"a" * 70_000 + b"\xff", "Documents are PDF, DOCX, PPTX or plain text in UTF-8."),
        (b" \n\n ", "The document contains no text; is it a scan?"),
    ],
)
def test_what_cannot_be_read_has_a_reason(content: bytes, says: str) -> None:
    """Encrypted, broken or empty documents are refused with a reason for their user."""
    with pytest.raises(UnreadableDocument) as refused:
        extract(BytesIO(content))
    assert str(refused.value) == says


def test_what_is_larger_than_the_plan_allows_is_refused(slides: Served) -> None:
    """The plan's limit counts, though the service would take more."""
    ivan = Person(slides, FREE)
    answer = ivan.upload(b"a" * 10_000_001)
    assert answer.status_code == 413
    assert "10,000,000 bytes that your plan allows" in answer.json()["detail"]


def test_what_is_larger_than_the_service_allows_is_not_even_read(anna: Person) -> None:
    """A length above every plan is refused by its announcement."""
    connection = HTTPConnection(anna.served.url.removeprefix("http://"), timeout=30)
    headers = {"content-type": "multipart/form-data; boundary=x", "content-length": "100004097"}
    connection.request("POST", "/documents", headers={"cookie": anna.cookie, **headers})
    with closing(connection):
        assert connection.getresponse().status == 413


def test_no_more_is_kept_than_the_plan_has_room_for(anna: Person, slides_places: dict[str, str]) -> None:
    """Of several documents that come at once, those that would not fit together are refused."""
    whose, gigabytes = anna.account["organization_id"], anna.want(200, "GET", "/auth/me")["storage_gb"]
    with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"]) as sql:
        sql.execute(
            "INSERT INTO slides.documents "
            "(id, organization_id, user_id, name, media_type, size, sha256, content, job_id) "
            "SELECT gen_random_uuid(), %s, %s, 'large', 'text/plain', "
            "%s - coalesce(sum(size), 0), '', '', '' FROM slides.documents WHERE organization_id = %s",
            (whose, anna.account["user_id"], gigabytes * 1_000_000_000 - 1000, whose),
        )
    try:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: anna.upload(b"a" * 600), range(8)))
    finally:
        with psycopg.connect(slides_places["EPHEMERA_DATABASE_URL"]) as sql:
            sql.execute("DELETE FROM slides.documents WHERE name = 'large'")
    assert sorted(answer.status_code for answer in answers) == [202] + [402] * 7
    refused = next(answer for answer in answers if answer.status_code == 402)
    assert refused.json()["detail"] == f"Your plan's {gigabytes} GB of document storage are used up."


def test_a_form_without_a_file_is_refused(anna: Person) -> None:
    """No form is 415, no file in it is 422."""
    assert anna.ask("POST", "/documents", content=b"text").status_code == 415
    assert anna.ask("POST", "/documents", files={"other": b"text"}).status_code == 422


@pytest.mark.usefixtures("slides_worker")
def test_a_document_without_text_fails_with_its_reason(anna: Person) -> None:
    """A PDF of empty pages can be opened, so only its job finds that there is nothing to read."""
    taken = anna.upload(_pdf(), "scan.pdf")
    assert taken.status_code == 202
    job = anna.finished(taken.json()["job_id"])
    assert (job["state"], job["error"]) == ("failed", "The document contains no text; is it a scan?")
    view = anna.want(200, "GET", f"/documents/{taken.json()['document_id']}")
    assert (view["state"], view["error"]) == ("failed", job["error"])
    last = [each for each in anna.events(job["job_id"]) if each.data][-1]
    assert last.data["event_type"] == "error"
    refused = anna.ask(
        "POST",
        "/presentations",
        json={"topic": "Nothing", "document_ids": [taken.json()["document_id"]]},
    )
    assert refused.status_code == 409


def test_a_page_of_a_sibling_origin_plants_no_document(anna: Person) -> None:
    """A form of another port of this host, the same site, uploads nothing with the user's cookie."""
    host = anna.served.url.rpartition(":")[0]
    for headers in ({"origin": f"{host}:9"}, {"origin": f"{host}:9", "sec-fetch-site": "same-site"}):
        planted = anna.ask("POST", "/documents", files={"file": ("a.txt", b"planted")}, headers=headers)
        assert planted.status_code == 403, planted.text
    own = {"origin": anna.served.url, "sec-fetch-site": "same-origin"}
    uploaded = anna.ask("POST", "/documents", files={"file": ("a.txt", b"My own text.")}, headers=own)
    assert uploaded.status_code in (200, 201, 202), uploaded.text


@pytest.mark.parametrize("name", [b"a\x00.txt", b"\xff\xfe.txt", b"\xed\xa0\x80.txt", b"x" * 5000, b""])
def test_a_malformed_file_name_is_no_server_error(anna: Person, name: bytes) -> None:
    """NULs, bytes that are not UTF-8 and endless names are refused, or the file is read without them."""
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="' + name
    body += b'"\r\nContent-Type: text/plain\r\n\r\nSome text.\r\n--x--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = anna.ask("POST", "/documents", content=body, headers=headers)
    assert answer.status_code < 500, answer.text
