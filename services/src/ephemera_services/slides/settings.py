"""What slides is told by its environment: `EPHEMERA_SLIDES_...`, besides what all systems take."""

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
    """Jobs that the service runs at once in workers of its own; 2 with embedded servers, else 0."""
    admin_email: Annotated[str, msgspec.Meta(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH)] | None = None
    """An administrator who is created at the start, if there is no user with this address."""
    admin_password: Secret | None = None
    """The password of this administrator."""
    organization: str = "Home"
    """The organization that is made for this administrator."""
    demo: bool = False
    """Some organizations and users to look at, with a password that everybody knows."""
    secure_cookies: bool = True
    """False is for plain HTTP on another machine than one's own."""
    logins_per_minute: Count = 10
    """Attempts to sign in from one address."""
    usage_flush: timedelta = timedelta(minutes=15)
    """How old a count of usage may be before SQL has it."""
    views_flush: timedelta = timedelta(minutes=1)
    """The same for views of shared presentations."""
    password_memory: Annotated[int, msgspec.Meta(ge=8, le=4096)] = 64
    """Mebibytes that a password check takes."""
    document_bytes: Annotated[int, msgspec.Meta(ge=1, le=200_000_000)] = 100_000_000
    """The largest document that is taken, whatever a plan allows."""
    model_url: str | None = None
    """An endpoint that speaks OpenAI's chat completions, as in http://127.0.0.1:11434/v1."""
    model: str = "default"
    """The model that the endpoint is asked for."""
    model_key: Secret | None = None
    """Sent to the endpoint as a bearer token."""
    cost_micros_per_1k_tokens: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    """What a thousand of the model's tokens cost, in millionths of a currency unit."""
    embedding_url: str | None = None
    """An endpoint that speaks OpenAI's embeddings; without it vectors are made of words."""
    embedding_model: str = "default"
    """The model that the embeddings' endpoint is asked for."""
    embedding_key: Secret | None = None
    """Sent to the embeddings' endpoint as a bearer token."""
    qdrant_url: str | None = None
    """A Qdrant that all processes share; without it each has one in memory, filled from SQL."""
    qdrant_key: Secret | None = None
    """The API key of this Qdrant."""
    google_credentials: str | None = None
    """The file of a Google service account, for exports to Google Slides."""
