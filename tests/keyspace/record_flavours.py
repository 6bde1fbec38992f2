"""The same record declared in each of the ways that a service may declare one."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic


class StructUser(msgspec.Struct):
    """A msgspec Struct."""

    user_id: str
    id: UUID
    age: Annotated[int, msgspec.Meta(ge=0)]
    seen: datetime
    admin: bool = False
    tags: list[str] = []
    score: float | None = None


class ModelUser(pydantic.BaseModel):
    """A pydantic model: strict, with aliases, and closed to unknown fields, as those of requests are."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    user_id: str = pydantic.Field(alias="userId", validation_alias="user")
    id: UUID
    age: int = pydantic.Field(ge=0)
    seen: datetime
    admin: bool = False
    tags: list[str] = []
    score: float | None = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def initials(self) -> str:
        """Not stored."""
        return self.user_id[:1]

    @pydantic.field_validator("tags")
    @classmethod
    def no_empty_tags(cls, tags: list[str]) -> list[str]:
        """A validator in Python."""
        if "" in tags:
            raise ValueError("a tag is empty")
        return tags


@dataclasses.dataclass
class DataclassUser:
    """A dataclass."""

    user_id: str
    id: UUID
    age: Annotated[int, msgspec.Meta(ge=0)]
    seen: datetime
    admin: bool = False
    tags: list[str] = dataclasses.field(default_factory=list)
    score: float | None = None


@attrs.frozen
class AttrsUser:
    """An attrs class, with a validator of its own."""

    user_id: str
    id: UUID
    age: int = attrs.field(validator=attrs.validators.ge(0))
    seen: datetime
    admin: bool = False
    tags: list[str] = attrs.Factory(list)
    score: float | None = None


class DictUser(TypedDict):
    """A TypedDict; it has no defaults, so optional items may be absent."""

    user_id: str
    id: UUID
    age: Annotated[int, msgspec.Meta(ge=0)]
    seen: datetime
    admin: NotRequired[bool]
    tags: NotRequired[list[str]]
    score: NotRequired[float | None]


FLAVOURS: dict[str, Any] = {
    "struct": StructUser,
    "pydantic": ModelUser,
    "dataclass": DataclassUser,
    "attrs": AttrsUser,
    "typeddict": DictUser,
}
SEEN = datetime(2026, 11, 18, 9, 30, 0, 250, tzinfo=UTC)


def make(flavour: str, user_id: str = "ann", **others: Any) -> Any:
    """A record of a flavour."""
    name = "user" if flavour == "pydantic" else "user_id"
    values = {name: user_id, "id": UUID(int=7), "age": 30, "seen": SEEN, "tags": ["a", "b"], **others}
    return FLAVOURS[flavour](**values)


def value_of(record: Any, name: str) -> Any:
    """One field of a record."""
    return record[name] if isinstance(record, dict) else getattr(record, name)
