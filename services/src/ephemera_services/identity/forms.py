"""Request and response models of identity's routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field, SecretStr, model_validator

from ephemera_services.identity.security_log import SecurityEvent
from ephemera_services.runtime import EMAIL_LENGTH, EMAIL_PATTERN, GivenPassword, NewPassword, RequestBody

NO_CONTROL = r"^[^\x00-\x1f\x7f]*$"

Email = Annotated[str, Field(pattern=EMAIL_PATTERN, max_length=EMAIL_LENGTH, examples=["taro@example.com"])]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_CONTROL, examples=["Taro"])]
Line = Annotated[str, Field(max_length=300, pattern=NO_CONTROL, examples=["1-2-3 Shibuya, Tokyo"])]
Phone = Annotated[str, Field(max_length=40, pattern=NO_CONTROL, examples=["090-1234-5678"])]
Code = Annotated[SecretStr, Field(min_length=1, max_length=200)]
Token = Annotated[SecretStr, Field(min_length=1, max_length=8192)]


class ProfileForm(RequestBody):
    """The fields of a profile that a user may change."""

    first_name: Name
    last_name: Name
    phone: Phone = ""
    address: Line = ""


class ProfilePatch(RequestBody):
    """Some fields of a profile; what is left out stays as it is."""

    first_name: Name = ""
    last_name: Name = ""
    phone: Phone = ""
    address: Line = ""

    @model_validator(mode="after")
    def _has_a_field(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("at least one field is required")
        return self


class Registration(ProfileForm):
    """A new account."""

    email: Email
    password: NewPassword


class Accepted(BaseModel):
    """The account exists now: a new one, or one that the address already had."""

    status: Literal["accepted"] = "accepted"


class SignInForm(RequestBody):
    """The credentials of a sign-in."""

    email: Email
    password: GivenPassword


class RefreshForm(RequestBody):
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
    created_at: datetime


class QuotaView(BaseModel):
    """How much of their quota a user has used."""

    documents: int
    max_documents: int
    bytes: int
    max_bytes: int


class DocumentList(BaseModel):
    """A user's documents, the newest first, and their quota."""

    documents: list[DocumentView]
    quota: QuotaView


class EmailForm(RequestBody):
    """An address, for a mail to the account that has it."""

    email: Email


class EmailChange(RequestBody):
    """A new address, and the password."""

    email: Email
    password: GivenPassword


class PasswordChange(RequestBody):
    """A new password, and the current one."""

    current_password: GivenPassword
    new_password: NewPassword


class PasswordReset(RequestBody):
    """A new password, and the code from the mail."""

    code: Code
    new_password: NewPassword


class CodeForm(RequestBody):
    """The code from a mail."""

    code: Code


class PasswordForm(RequestBody):
    """The password, once more."""

    password: GivenPassword


class AccountView(BaseModel):
    """An account."""

    user_id: UUID
    email: str
    email_verified_at: datetime | None
    first_name: str
    last_name: str
    role: Literal["user", "admin"]
    blocked_at: datetime | None
    created_at: datetime


class AccountList(BaseModel):
    """Accounts by address; `next` is the `after` of the next page, null on the last one."""

    users: list[AccountView]
    next: str | None


class SecurityEventView(BaseModel):
    """Something that happened to an account."""

    number: int
    at: datetime
    what: SecurityEvent
    by_admin: bool
    ip_address: str
    user_agent: str


class SecurityLogView(BaseModel):
    """What happened to an account, the newest first; `next` is the `before` of the next page."""

    events: list[SecurityEventView]
    next: int | None


class Introspection(BaseModel):
    """What a token says, if it is active (RFC 7662)."""

    active: bool
    token_type: Literal["Bearer"] | None = None
    sub: str | None = None
    sid: str | None = None
    jti: str | None = None
    iss: str | None = None
    aud: str | None = None
    iat: int | None = None
    exp: int | None = None
    role: str | None = None


class RoleForm(RequestBody):
    """A user's new role."""

    role: Literal["user", "admin"]


class NewKey(BaseModel):
    """A published signing key, and when it starts to sign."""

    kid: str
    signs_from: datetime


class KeySet(BaseModel):
    """The public keys that verify tokens (RFC 7517)."""

    keys: list[dict[str, Any]]


class EndedSignIns(BaseModel):
    """Digests of the sign-ins and access tokens that ended since a cursor, and the next cursor."""

    cursor: str
    ended: list[str]


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
