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
    """Worker processes that the service itself runs; 2 with embedded servers, else 0."""
    admin_email: Annotated[str, msgspec.Meta(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH)] | None = None
    """An administrator to create at startup, if there is no user with this address."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    organization: str = "Home"
    """The organization that is created for this administrator."""
    demo: bool = False
    """Create demo organizations and users, with a public password."""
    secure_cookies: bool = True
    """Set to false for plain HTTP from another machine."""
    logins_per_minute: Count = 10
    """Sign-in attempts from one address."""
    usage_flush: timedelta = timedelta(minutes=15)
    """Maximum age of usage counts before they are flushed to SQL."""
    views_flush: timedelta = timedelta(minutes=1)
    """The same for views of shared presentations."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check uses."""
    document_bytes: Annotated[int, msgspec.Meta(ge=1, le=200_000_000)] = 100_000_000
    """The largest accepted document, regardless of the plan."""
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
    google_credentials: str | None = None
    """The file of a Google service account, for exports to Google Slides."""
