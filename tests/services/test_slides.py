"""The whole story of slides, over HTTP and with a real worker: from a sign-in to files that open."""

from __future__ import annotations

from io import BytesIO

import pytest
from docx import Document
from pptx import Presentation
from pypdf import PdfReader
from reportlab.pdfgen.canvas import Canvas

from ephemera_services.slides import DEMO_DOCUMENT
from tests.services.services import Served
from tests.services.slides_processes import Model
from tests.services.slides_users import Person, every_slide, slide_events

pytestmark = pytest.mark.usefixtures("slides_worker")


def _pdf(text: str) -> bytes:
    file = BytesIO()
    page = Canvas(file)
    for line, sentence in enumerate(text.splitlines()):
        page.drawString(40, 800 - 14 * line, sentence)
    page.save()
    return file.getvalue()


def _docx(text: str) -> bytes:
    document, file = Document(), BytesIO()
    for paragraph in text.split("\n\n"):
        document.add_paragraph(paragraph)
    document.save(file)
    return file.getvalue()


def test_from_an_upload_to_files_that_open(anna: Person, slides_model: Model, slides: Served) -> None:
    """A document is read, a presentation is generated from it with progress events, exported and shared."""
    document_id = anna.document()
    view = anna.want(200, "GET", f"/documents/{document_id}")
    assert (view["state"], view["media_type"]) == ("done", "text/plain")
    assert view["chunks"] >= 1

    begun = anna.begin("Whales at sea", 4, document_ids=[document_id], audience="Sailors")
    messages = list(anna.events(begun["job_id"]))
    assert slide_events(messages) == every_slide(4)
    outlines = [message.data for message in messages if message.data.get("event_type") == "outline_ready"]
    assert [len(outline["titles"]) for outline in outlines] == [4]
    assert [message.name for message in messages][-1] == "end"
    assert messages[-2].data["event_type"] == "generation_done"
    percents = [message.data["progress_pct"] for message in messages if "progress_pct" in message.data]
    assert percents == sorted(percents)
    assert percents[-1] == 100

    made = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
    assert (made["state"], made["title"], made["slides_completed"]) == ("done", "Whales at sea", 4)
    assert [slide["number"] for slide in made["slides"]] == [1, 2, 3, 4]
    assert made["slides"][0]["sources"] == ["whales.txt"]
    assert any("[whales.txt]" in wish for wish in slides_model.asked), "the model was given the document"

    deck = Presentation(BytesIO(anna.exported(begun["presentation_id"], "pptx")))
    titles = [slide.shapes.title.text for slide in deck.slides]
    assert titles == [slide["title"] for slide in made["slides"]]
    assert "The first point of 2" in deck.slides[1].placeholders[1].text_frame.text
    assert deck.slides[1].notes_slide.notes_text_frame.text == "Say 2."
    pdf = PdfReader(BytesIO(anna.exported(begun["presentation_id"], "pdf")))
    assert len(pdf.pages) == 4
    assert "The first point of 3" in pdf.pages[2].extract_text()

    refused = anna.ask(
        "POST", f"/presentations/{begun['presentation_id']}/exports", json={"format": "google_slides"}
    )
    assert refused.status_code == 409
    assert "EPHEMERA_SLIDES_GOOGLE_CREDENTIALS" in refused.json()["detail"]

    path = f"/presentations/{begun['presentation_id']}/shares"
    share = anna.want(201, "POST", path)
    for _ in range(3):
        seen = slides.client.get(share["url"])
        assert seen.status_code == 200
        assert seen.json()["title"] == "Whales at sea"
    assert anna.want(201, "POST", path) == {**share, "view_count": 3}
    assert slides.client.get("/p/none-such").status_code == 404

    assert anna.want(204, "POST", "/auth/logout") is None
    assert anna.ask("GET", "/usage").status_code == 401


@pytest.mark.parametrize(("name", "make"), [("whales.pdf", _pdf), ("whales.docx", _docx)])
def test_pdf_and_docx_are_read(anna: Person, name: str, make: object) -> None:
    """What a PDF and a DOCX say reaches the presentation, as that of a text does."""
    document_id = anna.document(make(DEMO_DOCUMENT), name)  # type: ignore[operator]
    begun = anna.begin(f"Whales from {name}", 2, document_ids=[document_id])
    assert anna.finished(begun["job_id"])["state"] == "done"
    made = anna.want(200, "GET", f"/presentations/{begun['presentation_id']}")
    assert made["slides"][0]["sources"] == [name]


def test_usage_counts_tokens_in_millionths(anna: Person) -> None:
    """A presentation adds itself, its slides, its tokens and a cost far below a cent."""
    before = anna.want(200, "GET", "/usage")
    begun = anna.begin("The cost of whales", 3)
    reserved = anna.want(200, "GET", "/usage")["reserved"]
    assert reserved["presentations"] in (0, 1)
    assert anna.finished(begun["job_id"])["state"] == "done"
    after = anna.want(200, "GET", "/usage")
    added = {name: after["used"][name] - before["used"][name] for name in after["used"]}
    assert added == {"presentations": 1, "slides": 3, "tokens": 400, "cost_micros": 168}
    assert set(after["reserved"].values()) == {0}


def test_an_outline_is_asked_for_once(anna: Person, slides_model: Model) -> None:
    """The same wish, and almost the same, takes the outline from the semantic cache; another does not."""
    for topic, slides_wanted in (
        ("An outline for a pitch deck on krill", 2),
        ("An outline for a pitch deck on krill", 2),
        ("an outline for a pitch deck on krill!", 2),
        ("An outline for a pitch deck on krill", 3),
    ):
        begun = anna.begin(topic, slides_wanted)
        assert anna.finished(begun["job_id"])["state"] == "done"
    asked = [
        wish
        for wish in slides_model.asked
        if wish.startswith("Write the outline") and "deck on krill" in wish
    ]
    assert len(asked) == 2
