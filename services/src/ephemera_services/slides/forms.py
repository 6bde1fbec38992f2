"""Request and response models of slides' routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN
from ephemera_services.slides.accounts import RoleName
from ephemera_services.slides.plans import PlanName

_NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"

Email = Annotated[str, Field(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH, examples=["anna@example.com"])]
Password = Annotated[SecretStr, Field(min_length=10, max_length=128, examples=["correct horse battery"])]
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=_NO_CONTROL)]
Format = Literal["pptx", "pdf", "google_slides"]
State = Literal["waiting", "running", "done", "failed", "cancelled", "dead"]


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Credentials(_RequestBody):
    """The credentials of a sign-in."""

    email: Email
    password: Annotated[SecretStr, Field(min_length=1, max_length=128)]


class SignInResponse(BaseModel):
    """Who is signed in."""

    user_id: UUID
    organization_id: UUID
    email: str
    role: RoleName
    plan: str


class NewUser(_RequestBody):
    """A user of the administrator's organization."""

    email: Email
    password: Password
    role: RoleName


class CreatedUser(BaseModel):
    """The new user."""

    user_id: UUID


class RoleForm(_RequestBody):
    """A role."""

    role: RoleName


class BlockForm(_RequestBody):
    """Whether a user may sign in."""

    blocked: bool


class SessionsEnded(BaseModel):
    """How many sessions were ended."""

    sessions_ended: int


class PlanForm(_RequestBody):
    """A plan, optionally with an individual rate limit."""

    plan: PlanName
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class LimitsView(BaseModel):
    """The limits of an organization's plan; null means unlimited."""

    model_config = ConfigDict(from_attributes=True)

    plan_name: str
    max_presentations_per_month: int | None
    max_file_size_mb: int
    ai_tokens_per_month: int | None
    storage_gb: int
    requests_per_minute: int
    features: list[str]
    subscription_status: str


class KeyForm(_RequestBody):
    """A name for an API key."""

    name: Line


class NewKey(BaseModel):
    """An API key; `key` is shown only once."""

    api_key_id: UUID
    key: str


class DocumentAccepted(BaseModel):
    """An uploaded document, and the job that reads it."""

    document_id: UUID
    job_id: UUID


class DocumentView(BaseModel):
    """A document and the state of its job."""

    document_id: UUID
    name: str
    media_type: str
    size: int
    sha256: str
    state: State
    error: str | None
    chunks: int
    job_id: UUID
    created_at: datetime


class PresentationRequest(_RequestBody):
    """A presentation to generate."""

    topic: Annotated[str, Field(min_length=3, max_length=500, pattern=_NO_CONTROL, examples=["Whales"])]
    slides: Annotated[int, Field(ge=1, le=50)] = 10
    audience: Annotated[str, Field(max_length=200, pattern=_NO_CONTROL)] = ""
    language: Annotated[str, Field(pattern="^[A-Za-z]{2,3}(-[A-Za-z]{2,4})?$")] = "en"
    document_ids: Annotated[list[UUID], Field(max_length=20)] = []


class PresentationAccepted(BaseModel):
    """A new presentation, and the job that generates it."""

    presentation_id: UUID
    job_id: UUID


class SlideView(BaseModel):
    """A slide."""

    slide_id: UUID
    number: int
    title: str
    bullets: list[str]
    notes: str
    sources: list[str]


class PresentationView(BaseModel):
    """A presentation and the state of its job; it has slides when it is done."""

    presentation_id: UUID
    job_id: UUID
    topic: str
    title: str | None
    audience: str
    language: str
    state: State
    error: str | None
    slides_total: int
    slides_completed: int
    slides: list[SlideView]
    created_at: datetime


class SharedView(BaseModel):
    """A presentation as anyone with its link sees it."""

    title: str
    slides: list[SlideView]


class JobView(BaseModel):
    """A job, from SQL."""

    job_id: UUID
    kind: Literal["generate", "ingest", "export"]
    state: State
    attempts: int
    slides_completed: int
    error: str | None
    result: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ExportForm(_RequestBody):
    """The format of an export."""

    format: Format


class ExportAccepted(BaseModel):
    """A new export, and the job that renders it."""

    export_id: UUID
    job_id: UUID


class ExportView(BaseModel):
    """An export; it has a `url` when it is done."""

    export_id: UUID
    presentation_id: UUID
    format: Format
    state: State
    error: str | None
    url: str | None
    job_id: UUID
    created_at: datetime


class ShareView(BaseModel):
    """A public link and its number of views."""

    token: str
    url: str
    view_count: int


class UsageView(BaseModel):
    """An organization's usage in a month, flushed to SQL or not, its reservations, and its limits."""

    period: str
    used: dict[str, int]
    reserved: dict[str, int]
    cost: Annotated[str, Field(description="cost_micros in units of the currency")]
    limits: LimitsView
