"""The settings of scripture: `EPHEMERA_SCRIPTURE_...`, besides those that all services share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from ephemera_services.runtime import InvalidSettings, Secret, ServiceSettings

_WEB = ("http://", "https://")

Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class Settings(ServiceSettings, kw_only=True, frozen=True):
    """The settings of scripture."""

    service: ClassVar[str] = "scripture"

    identity: str | None = "scripture"
    """The identity that its Redis must carry, so that it is not another database by mistake."""
    jwks: str | None = None
    """The key set that verifies access tokens: a URL, or a file. Without it tokens are refused."""
    issuer: str = "ephemera-identity"
    """The required issuer (`iss`) of tokens."""
    audience: str = "ephemera"
    """The required audience (`aud`) of tokens."""
    model_url: str | None = None
    """An OpenAI-compatible endpoint for chat completions; without it answers are quotations."""
    model_name: str = "gpt-4o-mini"
    """The model name for this endpoint."""
    model_key: Secret | None = None
    """Sent to the endpoints as a bearer token."""
    embeddings_url: str | None = None
    """An OpenAI-compatible endpoint for embeddings; without it similarity is lexical."""
    embeddings_model: str = "text-embedding-3-small"
    """The model name for the embeddings endpoint."""
    qdrant_url: str | None = None
    """A Qdrant shared by all processes; without it each has its own in memory."""
    mail_url: Secret | None = None
    """`smtp://user:password@host:587` or `smtps://...`; without it mails stay in the table `mails`."""
    mail_from: str = "scripture@localhost"
    """The sender of mails."""
    consumers: bool = True
    """Whether the service handles events itself; set to false if `ephemera worker` does."""
    ingest_bytes: Annotated[int, msgspec.Meta(ge=1000, le=50_000_000)] = 2_000_000
    """The largest accepted ingest document, in bytes."""
    search_free: Count = 20
    """Searches per minute, without a subscription"""
    search_paid: Count = 200
    """and with one."""
    passages_free: Count = 60
    """Passages per minute, without a subscription"""
    passages_paid: Count = 600
    """and with one."""
    lexicon_free: Count = 40
    """Lexicon entries per minute, without a subscription"""
    lexicon_paid: Count = 400
    """and with one."""
    ai_free: Count = 5
    """Questions per hour, without a subscription,"""
    ai_paid: Count = 50
    """with one,"""
    ai_ai: Count = 200
    """and with an AI subscription."""

    def check(self) -> None:
        """Raise `InvalidSettings` with everything that is wrong with URLs and files."""
        problems = [f"EPHEMERA_SCRIPTURE_{name}: {problem}" for name, problem in self._problems()]
        if problems:
            raise InvalidSettings(problems)

    def _problems(self) -> Iterator[tuple[str, str]]:
        for name in ("model_url", "embeddings_url", "qdrant_url"):
            url = getattr(self, name)
            if url is not None and not url.startswith(_WEB):
                yield name.upper(), "it must begin with http:// or https://"
        if self.jwks is not None and not self.jwks.startswith(_WEB) and not Path(self.jwks).is_file():
            yield "JWKS", "it is neither a URL with http:// or https:// nor an existing file"
        if self.mail_url is not None and not self.mail_url.reveal().startswith(("smtp://", "smtps://")):
            yield "MAIL_URL", "it must begin with smtp:// or smtps://"

    def limits(self) -> dict[str, dict[str, int]]:
        """The limits by rule and tier: per minute, for `ai` per hour."""
        return {
            "search": {"free": self.search_free, "paid": self.search_paid},
            "passages": {"free": self.passages_free, "paid": self.passages_paid},
            "lexicon": {"free": self.lexicon_free, "paid": self.lexicon_paid},
            "ai": {"free": self.ai_free, "paid": self.ai_paid, "ai": self.ai_ai},
        }
