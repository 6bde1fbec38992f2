"""What identity's routes take and give, as its OpenAPI document shows it."""

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


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProfileForm(_Taken):
    """What a user may change of their profile."""

    first_name: Name
    last_name: Name
    phone: Annotated[str, Field(max_length=40, pattern=_NO_CONTROL, examples=["090-1234-5678"])] = ""
    address: Line = ""


class Registration(ProfileForm):
    """A new account."""

    email: Email
    password: Password


class Registered(BaseModel):
    """The account that was made."""

    user_id: UUID


class Credentials(_Taken):
    """Who wants to sign in."""

    email: Email
    password: Annotated[SecretStr, Field(min_length=1, max_length=128)]


class RefreshForm(_Taken):
    """The refresh token, which is used up."""

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
    in_use: Annotated[bool | None, Field(description="Whether it was used within the hour; null: unknown")]
    current: Annotated[bool, Field(description="Whether it is that of this request")]


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


class RoleForm(_Taken):
    """A user's new role."""

    role: Literal["user", "admin"]


class NewKey(BaseModel):
    """A signing key that is published, and signs from an instant on."""

    kid: str
    signs_from: datetime


class KeySet(BaseModel):
    """The public keys that verify tokens (RFC 7517)."""

    keys: list[dict[str, Any]]


class Against(BaseModel):
    """A figure against its estimate."""

    value: float | None
    low: float
    high: float
    verdict: Literal["below", "within", "above", "unknown"]


class CategoryView(BaseModel):
    """The keys of one category."""

    category: Literal["sessions", "blacklist", "cache", "rate", "total"]
    keys: Against
    bytes: Against
    mean_ttl_seconds: Against | None


class RedisStats(BaseModel):
    """What identity keeps in Redis, against what was estimated."""

    complete: Annotated[bool, Field(description="Whether all keys were counted; otherwise it is an estimate")]
    sampled: int
    seconds: float
    categories: list[CategoryView]
