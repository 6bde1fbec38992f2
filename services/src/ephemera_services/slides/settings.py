"""The settings of slides: `EPHEMERA_SLIDES_...`, besides those that all services share."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

import msgspec

from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN, Secret, ServiceSettings

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of slides."""

    service: ClassVar[str] = "slides"

    workers: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = None
    """Worker processes that the service itself runs, besides one that reads documents; 2 with embedded
    servers, else 0, and then none."""
    admin_email: Annotated[str, msgspec.Meta(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH)] | None = None
    """An administrator to create at startup, if the organization has no user with this address."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    organization: str = "Home"
    """The organization of this administrator, which is created if needed."""
    demo: bool = False
    """Create demo organizations and users, with a public password."""
    secure_cookies: bool = True
    """Set to false for plain HTTP from another machine."""
    operator_token: Secret | None = None
    """The bearer token for `/operator/...`, at least 16 characters; without it they are 404."""
    logins_per_minute: Count = 10
    """Sign-in attempts from one address."""
    wrong_passwords_per_hour: Count = 10
    """For one account, from all addresses that it is not used from."""
    shared_reads_per_minute: Count = 120
    """Reads of shared presentations from one address."""
    keys_per_user: Count = 10
    """API keys of one user that have not expired."""
    streams_per_user: Count = 20
    """Open streams and WebSockets of one user, for each process."""
    usage_flush: timedelta = timedelta(minutes=15)
    """Maximum age of usage counts before they are flushed to SQL."""
    views_flush: timedelta = timedelta(minutes=1)
    """The same for views of shared presentations."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check uses."""
    document_bytes: Annotated[int, msgspec.Meta(ge=1, le=200_000_000)] = 100_000_000
    """The largest accepted document, regardless of the plan."""
    documents_unread: Count = 20
    """Documents of one organization that may wait to be read; more are refused with 429."""
    documents_at_once: Count = 1
    """Documents of one organization that are read at the same time."""
    reading_seconds: Annotated[int, msgspec.Meta(ge=1, le=600)] = 4
    """Seconds of processor time that extracting the text of a document may take."""
    reading_megabytes: Annotated[int, msgspec.Meta(ge=128, le=4096)] = 256
    """Memory of the process that extracts it."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint for chat completions, such as http://127.0.0.1:11434/v1."""
    model: str = "default"
    """The model name for this endpoint."""
    model_key: Secret | None = None
    """Sent to the endpoint as a bearer token."""
    cost_micros_per_1k_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    """The price of a thousand tokens, in millionths of a currency unit."""
    embedding_url: str | None = None
    """An OpenAI-compatible endpoint for embeddings; without it they are lexical."""
    embedding_model: str = "default"
    """The model name for the embeddings endpoint."""
    embedding_key: Secret | None = None
    """Sent to the embeddings endpoint as a bearer token."""
    qdrant_url: str | None = None
    """A Qdrant shared by all processes; without it each has one in memory, filled from SQL."""
    qdrant_key: Secret | None = None
    """The API key of this Qdrant."""
    qdrant_ca: str | None = None
    """The file of the authority that signed its certificate; by default the public ones."""
    webhooks_anywhere: bool = False
    """Whether webhooks may call plain HTTP and addresses of private networks; for development."""
    google_credentials: str | None = None
    """The file of a Google service account, for exports to Google Slides."""
