"""What the routes of slides take and give, as its OpenAPI document shows it."""

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


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Credentials(_Taken):
    """Who wants to sign in."""

    email: Email
    password: Annotated[SecretStr, Field(min_length=1, max_length=128)]


class SignedIn(BaseModel):
    """Who is signed in."""

    user_id: UUID
    organization_id: UUID
    email: str
    role: RoleName
    plan: str


class NewUser(_Taken):
    """A user of the administrator's organization."""

    email: Email
    password: Password
    role: RoleName


class MadeUser(BaseModel):
    """The user that was made."""

    user_id: UUID


class RoleForm(_Taken):
    """A role."""

    role: RoleName


class BlockForm(_Taken):
    """Whether a user may sign in."""

    blocked: bool


class Ended(BaseModel):
    """How many sessions were ended."""

    sessions_ended: int


class PlanForm(_Taken):
    """A plan, perhaps with a rate of one's own."""

    plan: PlanName
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class LimitsView(BaseModel):
    """What an organization's plan allows; null is without a limit."""

    model_config = ConfigDict(from_attributes=True)

    plan_name: str
    max_presentations_per_month: int | None
    max_file_size_mb: int
    ai_tokens_per_month: int | None
    storage_gb: int
    requests_per_minute: int
    features: list[str]
    subscription_status: str


class KeyForm(_Taken):
    """A name for an API key."""

    name: Line


class NewKey(BaseModel):
    """An API key; `key` is shown this once."""

    api_key_id: UUID
    key: str


class Accepted(BaseModel):
    """A document that was taken, and the job that reads it."""

    document_id: UUID
    job_id: UUID


class DocumentView(BaseModel):
    """A document, and how far it is."""

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


class Wish(_Taken):
    """A presentation to be written."""

    topic: Annotated[str, Field(min_length=3, max_length=500, pattern=_NO_CONTROL, examples=["Whales"])]
    slides: Annotated[int, Field(ge=1, le=50)] = 10
    audience: Annotated[str, Field(max_length=200, pattern=_NO_CONTROL)] = ""
    language: Annotated[str, Field(pattern="^[A-Za-z]{2,3}(-[A-Za-z]{2,4})?$")] = "en"
    document_ids: Annotated[list[UUID], Field(max_length=20)] = []


class Begun(BaseModel):
    """A presentation that will be written, and the job that does."""

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
    """A presentation, and how far it is; its slides are there when it is done."""

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
    """A presentation as everybody with its link sees it."""

    title: str
    slides: list[SlideView]


class JobView(BaseModel):
    """A job, as SQL has it."""

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


class ExportForm(_Taken):
    """What to make of a presentation."""

    format: Format


class ExportBegun(BaseModel):
    """An export that will be made, and the job that does."""

    export_id: UUID
    job_id: UUID


class ExportView(BaseModel):
    """An export; `url` is there when it is done."""

    export_id: UUID
    presentation_id: UUID
    format: Format
    state: State
    error: str | None
    url: str | None
    job_id: UUID
    created_at: datetime


class ShareView(BaseModel):
    """A link for everybody, and how often it was used."""

    token: str
    url: str
    view_count: int


class UsageView(BaseModel):
    """What an organization used in a month, flushed to SQL or not, what is under way, and its limits."""

    period: str
    used: dict[str, int]
    reserved: dict[str, int]
    cost: Annotated[str, Field(description="cost_micros in units of the currency")]
    limits: LimitsView
