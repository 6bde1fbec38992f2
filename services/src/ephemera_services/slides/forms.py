"""Request and response models of slides' routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN, GivenPassword, NewPassword, RequestBody
from ephemera_services.slides.accounts import RoleName
from ephemera_services.slides.deck import Layout
from ephemera_services.slides.keys import SubscriptionStatus
from ephemera_services.slides.plans import PlanName
from ephemera_services.slides.themes import ThemeName

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"
"""The pattern of a line without control characters."""

Email = Annotated[str, Field(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH, examples=["anna@example.com"])]
Line = Annotated[str, Field(min_length=1, max_length=200, pattern=NO_CONTROL)]
Format = Literal["pptx", "pdf", "google_slides"]
State = Literal["waiting", "running", "done", "failed", "cancelled", "dead"]


class SignInForm(RequestBody):
    """The credentials of a sign-in: an address is an account of one organization, and another's elsewhere."""

    organization: Annotated[Line, Field(examples=["Company"])]
    email: Email
    password: GivenPassword


class SignInResponse(BaseModel):
    """Who is signed in."""

    user_id: UUID
    organization_id: UUID
    email: str
    role: RoleName
    plan: str


class PasswordForm(RequestBody):
    """A new password, and the current one."""

    current_password: GivenPassword
    new_password: NewPassword


class NewUser(RequestBody):
    """A user of the administrator's organization."""

    email: Email
    password: NewPassword
    role: RoleName


class CreatedUser(BaseModel):
    """The new user."""

    user_id: UUID


class UserView(BaseModel):
    """A user of the administrator's organization."""

    user_id: UUID
    email: str
    role: RoleName
    blocked: bool
    created_at: datetime


class UserList(BaseModel):
    """Users, by address."""

    users: list[UserView]


class RoleForm(RequestBody):
    """A role."""

    role: RoleName


class BlockForm(RequestBody):
    """Whether a user may sign in."""

    blocked: bool


class SessionsEnded(BaseModel):
    """How many sessions were ended."""

    sessions_ended: int


class PlanForm(RequestBody):
    """A plan, optionally with an individual rate limit."""

    plan: PlanName
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    subscription_status: SubscriptionStatus = "active"
    period_end: AwareDatetime | None = None


class RecountView(BaseModel):
    """The usage of a month by the jobs in SQL, and what had to be added to the counters, or subtracted."""

    period: str
    counted: dict[str, int]
    corrected: dict[str, int]


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
    subscription_status: SubscriptionStatus
    period_end: datetime | None


class AccountView(LimitsView):
    """The caller, and the limits of their organization's plan."""

    user_id: UUID
    organization_id: UUID
    role: RoleName


class OrganizationView(BaseModel):
    """An organization and its plan."""

    organization_id: UUID
    name: str
    plan: str


class KeyForm(RequestBody):
    """A name for an API key, and the days until it expires."""

    name: Line
    days: Annotated[int, Field(ge=1, le=365)] = 90


class KeyView(BaseModel):
    """An API key, without the key itself."""

    api_key_id: UUID
    name: str
    created_at: datetime
    expires_at: datetime


class KeyList(BaseModel):
    """The caller's API keys, the oldest first."""

    keys: list[KeyView]


class NewKey(BaseModel):
    """An API key; `key` is shown only once."""

    api_key_id: UUID
    key: str
    expires_at: datetime


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


class PresentationRequest(RequestBody):
    """A presentation to generate."""

    topic: Annotated[str, Field(min_length=3, max_length=500, pattern=NO_CONTROL, examples=["Whales"])]
    slides: Annotated[int, Field(ge=1, le=50)] = 10
    audience: Annotated[str, Field(max_length=200, pattern=NO_CONTROL)] = ""
    language: Annotated[str, Field(pattern="^[A-Za-z]{2,3}(-[A-Za-z]{2,4})?$")] = "en"
    theme: ThemeName = "paper"
    document_ids: Annotated[list[UUID], Field(max_length=20, default_factory=list)]


class PresentationAccepted(BaseModel):
    """A new presentation, and the job that generates it."""

    presentation_id: UUID
    job_id: UUID


class ColumnView(BaseModel):
    """One of two columns of a slide."""

    heading: str
    bullets: list[str]


class TableView(BaseModel):
    """The table of a slide, which a slide with the layout `chart` shows as a chart."""

    header: list[str]
    rows: list[list[str]]


class SeriesView(BaseModel):
    """A series of a chart: its values, and how they are written."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    values: list[float]
    texts: list[str]
    below: list[bool]


class ChartView(BaseModel):
    """The chart of a slide, ready to draw between the ends of its axis."""

    model_config = ConfigDict(from_attributes=True)

    labels: list[str]
    series: list[SeriesView]
    is_time: bool
    low: float
    high: float


class SlideView(BaseModel):
    """A slide; its layout says what of it is shown."""

    slide_id: UUID
    number: int
    layout: Layout
    title: str
    bullets: list[str]
    columns: list[ColumnView]
    table: TableView | None
    chart: ChartView | None
    """Null if the layout is another, or the table is not one of numbers that share an axis."""
    notes: str
    sources: list[str]


class PresentationView(BaseModel):
    """A presentation, the state of its job, and the slides that are written so far."""

    presentation_id: UUID
    job_id: UUID
    topic: str
    title: str | None
    audience: str
    language: str
    theme: ThemeName
    state: State
    error: str | None
    slides_total: int
    slides_completed: int
    slides: list[SlideView]
    created_at: datetime


class SharedSlide(BaseModel):
    """A slide of a shared presentation, without notes and sources."""

    number: int
    layout: Layout
    title: str
    bullets: list[str]
    columns: list[ColumnView]
    table: TableView | None


class SharedView(BaseModel):
    """A presentation as anyone with its link sees it."""

    title: str
    slides: list[SharedSlide]


class JobView(BaseModel):
    """A job, from SQL."""

    job_id: UUID
    kind: Literal["generate", "rewrite", "ingest", "export"]
    state: State
    attempts: int
    slides_completed: int
    error: str | None
    result: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ExportForm(RequestBody):
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


class ShareForm(RequestBody):
    """The days until a public link expires; null if it does not."""

    days: Annotated[int, Field(ge=1, le=365)] | None = None


class ShareView(BaseModel):
    """A public link, when it expires, and its number of views."""

    token: str
    url: str
    expires_at: datetime | None
    view_count: int


class UsageView(BaseModel):
    """An organization's usage in a month, flushed to SQL or not, its reservations, and its limits."""

    period: str
    used: dict[str, int]
    reserved: dict[str, int]
    cost: Annotated[str, Field(description="cost_micros in units of the currency")]
    storage_bytes: Annotated[int, Field(description="of the documents that are kept, now")]
    limits: LimitsView
