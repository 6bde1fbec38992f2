"""Request and response models of the library: lists, edits, brand kits and webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Base64Bytes, BaseModel, Field, model_validator

from ephemera_services.runtime import RequestBody
from ephemera_services.slides.deck import Layout
from ephemera_services.slides.forms import NO_CONTROL, DocumentView, Line, State
from ephemera_services.slides.themes import ThemeName

_Words = Annotated[str, Field(max_length=500, pattern=NO_CONTROL)]
_Bullets = Annotated[list[_Words], Field(max_length=20)]
_Colour = Annotated[str, Field(pattern="^[0-9A-Fa-f]{6}$", examples=["1F3A5F"])]
_Font = Annotated[str, Field(min_length=1, max_length=60, pattern="^[A-Za-z0-9 -]+$", examples=["Georgia"])]


class PresentationSummary(BaseModel):
    """A presentation in a list."""

    presentation_id: UUID
    job_id: UUID
    topic: str
    title: str | None
    theme: ThemeName
    language: str
    state: State
    error: str | None
    slides: int
    shared: bool
    created_at: datetime


class PresentationList(BaseModel):
    """Presentations, and how many there are in all."""

    presentations: list[PresentationSummary]
    total: int


class DocumentList(BaseModel):
    """Documents, and how many there are in all."""

    documents: list[DocumentView]
    total: int


class PresentationChange(RequestBody):
    """What to change of a presentation."""

    title: Line | None = None
    theme: ThemeName | None = None


class ColumnForm(RequestBody):
    """One of two columns of a slide."""

    heading: _Words
    bullets: _Bullets


class TableForm(RequestBody):
    """The table of a slide: its header, and rows of the same length."""

    header: Annotated[list[_Words], Field(min_length=2, max_length=6)]
    rows: Annotated[
        list[Annotated[list[_Words], Field(min_length=2, max_length=6)]], Field(min_length=1, max_length=100)
    ]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if any(len(row) != len(self.header) for row in self.rows):
            raise ValueError("each row must have as many cells as the header")
        return self


class SlideChange(RequestBody):
    """What to change of a slide."""

    title: _Words = ""
    layout: Layout = "bullets"
    bullets: Annotated[_Bullets, Field(default_factory=list)]
    columns: Annotated[list[ColumnForm], Field(max_length=2, default_factory=list)]
    table: TableForm | None = None
    notes: Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")] = ""


class SlideOrder(RequestBody):
    """All slides of a presentation, in their new order."""

    slide_ids: Annotated[list[UUID], Field(min_length=1, max_length=200)]


class StartedJob(BaseModel):
    """A job that was started."""

    job_id: UUID


class BrandKitForm(RequestBody):
    """The colours, fonts and logo of an organization; a logo that is not sent is removed."""

    primary: _Colour
    accent: _Colour
    heading_font: _Font = "Calibri"
    body_font: _Font = "Calibri"
    logo: Annotated[Base64Bytes, Field(description="a PNG or JPEG, in base64")] | None = None


class BrandKitView(BaseModel):
    """A brand kit."""

    primary: str
    accent: str
    heading_font: str
    body_font: str
    has_logo: bool


class WebhookForm(RequestBody):
    """The URL of a webhook."""

    url: Annotated[
        str, Field(max_length=500, pattern=r"^https?://[\x21-\x7e]+$", examples=["https://example.com/hook"])
    ]


class NewWebhook(BaseModel):
    """A webhook; its secret is shown only once."""

    webhook_id: UUID
    secret: str


class WebhookView(BaseModel):
    """A webhook."""

    webhook_id: UUID
    url: str
    created_at: datetime


class WebhookList(BaseModel):
    """The webhooks of an organization."""

    webhooks: list[WebhookView]


class DeliveryView(BaseModel):
    """A delivery of a webhook, and the outcome of its last attempt."""

    delivery_id: UUID
    type: str
    state: Literal["pending", "delivered", "failed"]
    attempts: int
    status: int | None
    error: str | None
    created_at: datetime
    last_attempt_at: datetime | None


class DeliveryList(BaseModel):
    """Deliveries, the newest first."""

    deliveries: list[DeliveryView]
