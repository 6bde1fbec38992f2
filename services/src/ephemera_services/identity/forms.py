"""Request and response models of identity's routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN

_NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"

Email = Annotated[str, Field(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH, examples=["taro@example.com"])]
Password = Annotated[SecretStr, Field(min_length=10, max_length=128, examples=["correct horse battery"])]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=_NO_CONTROL, examples=["Taro"])]
Line = Annotated[str, Field(max_length=300, pattern=_NO_CONTROL, examples=["1-2-3 Shibuya, Tokyo"])]
Token = Annotated[SecretStr, Field(min_length=1, max_length=8192)]


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProfileForm(_RequestBody):
    """The fields of a profile that a user may change."""

    first_name: Name
    last_name: Name
    phone: Annotated[str, Field(max_length=40, pattern=_NO_CONTROL, examples=["090-1234-5678"])] = ""
    address: Line = ""


class Registration(ProfileForm):
    """A new account."""

    email: Email
    password: Password


class Registered(BaseModel):
    """The new account."""

    user_id: UUID


class Credentials(_RequestBody):
    """The credentials of a sign-in."""

    email: Email
    password: Annotated[SecretStr, Field(min_length=1, max_length=128)]


class RefreshForm(_RequestBody):
    """A refresh token, which can be used once."""

    refresh_token: Token


class TokenPair(BaseModel):
    """The tokens of a sign-in; `sid` stays the same when they are refreshed."""

    user_id: UUID
    sid: UUID
    access_token: str
    refresh_token: str
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105
    expires_in: int


class SessionView(BaseModel):
    """One sign-in of a user."""

    sid: UUID
    created_at: datetime
    refreshed_at: datetime
    expires_at: datetime
    ip_address: str
    user_agent: str
    in_use: Annotated[bool | None, Field(description="Whether it was used within the hour; null if unknown")]
    current: Annotated[bool, Field(description="Whether it is the sign-in of this request")]


class SessionList(BaseModel):
    """A user's sign-ins, the newest first."""

    sessions: list[SessionView]


class Ended(BaseModel):
    """How many sign-ins were ended."""

    ended: int


class ProfileView(BaseModel):
    """A user's profile."""

    user_id: UUID
    email: str
    first_name: str
    last_name: str
    phone: str
    address: str
    cached_at: datetime


class DocumentView(BaseModel):
    """A document that was stored."""

    document_id: UUID
    name: str
    media_type: str
    size: int
    sha256: str


class RoleForm(_RequestBody):
    """A user's new role."""

    role: Literal["user", "admin"]


class NewKey(BaseModel):
    """A published signing key, and when it starts to sign."""

    kid: str
    signs_from: datetime


class KeySet(BaseModel):
    """The public keys that verify tokens (RFC 7517)."""

    keys: list[dict[str, Any]]


class Comparison(BaseModel):
    """A figure compared with its estimate."""

    value: float | None
    low: float
    high: float
    verdict: Literal["below", "within", "above", "unknown"]


class CategoryView(BaseModel):
    """The keys of one category."""

    category: Literal["sessions", "blacklist", "cache", "rate", "total"]
    keys: Comparison
    bytes: Comparison
    mean_ttl_seconds: Comparison | None


class RedisStats(BaseModel):
    """What identity keeps in Redis, compared with the estimates."""

    complete: Annotated[
        bool, Field(description="Whether all keys were counted; otherwise the figures are extrapolated")
    ]
    sampled: int
    seconds: float
    categories: list[CategoryView]
