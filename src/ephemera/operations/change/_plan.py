"""Compare two versions of a catalogue, keyspace by keyspace, by what they mean for keys that exist.

Two patterns are the same if they render the same keys: names of fields do not matter. A record is readable
when every field that has no default is stored, and no stored field has become another type; a union that
gained an alternative still reads what was stored before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ephemera.errors import InvalidValue
from ephemera.keyspace import Catalogue, Keyspace, KeyspaceOptions, permanent
from ephemera.operations.audit import Severity
from ephemera.operations.documentation import FieldDoc, KeyspaceDoc, typed_pattern
from ephemera.operations.formatting import format_duration
from ephemera.operations.survey import SurveyOptions, open_servers, survey

_REDIS_TYPES = {"mapping": "hash", "value": "string", "counter": "string", "flag": "string"}
_SEVERITIES: dict[str, Severity] = {
    "wrong-type": "problem",
    "unreadable": "problem",
    "moved": "problem",
    "unreadable-by-old-code": "warning",
    "orphaned": "warning",
    "never-expires": "warning",
    "will-vanish": "warning",
    "shorter-lifetime": "note",
    "longer-lifetime": "note",
    "no-longer-sensitive": "note",
    "new": "note",
}


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What one change means for the keys that exist, and what to do."""

    kind: str
    severity: Severity
    pattern: str
    message: str
    advice: str = ""
    keys: int | None = None  # on the server, if one was asked


class _Document(msgspec.Struct):
    keyspaces: list[KeyspaceDoc]


def read_declarations(path: Path) -> list[KeyspaceDoc]:
    """The keyspaces of a file that `ephemera catalogue --json` printed."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Document).keyspaces
    except msgspec.MsgspecError as problem:
        raise InvalidValue(str(path), "the JSON of `ephemera catalogue --json`", str(problem)) from None


def plan(old: Sequence[KeyspaceDoc], new: Sequence[KeyspaceDoc]) -> list[PlannedChange]:
    """What the change from one version to another means for keys that exist, most severe first."""
    now = {_keys_of(doc): doc for doc in new}
    before = {_keys_of(doc): doc for doc in old}
    found = [
        _change(kind, doc.pattern, *texts)
        for keys, doc in before.items()
        if doc.kind != "channel"
        for kind, *texts in (_changes(doc, now[keys]) if keys in now else _gone(doc))
    ]
    found += [
        _change("new", doc.pattern, f"{doc.kind}, role {doc.role}, {doc.lifetime}")
        for keys, doc in now.items()
        if keys not in before
    ]
    return sorted(found, key=lambda each: list(_SEVERITIES).index(each.kind))


def orphans(old: Iterable[KeyspaceDoc], new: Iterable[KeyspaceDoc]) -> list[KeyspaceDoc]:
    """The keyspaces whose keys nothing declares any more."""
    kept = {_keys_of(doc) for doc in new}
    return [doc for doc in old if doc.kind != "channel" and _keys_of(doc) not in kept]


async def count_keys(
    url: str, docs: Sequence[KeyspaceDoc], changes: Iterable[PlannedChange]
) -> list[PlannedChange]:
    """The same changes, with the number of keys on a server that each concerns."""
    async with open_servers(url) as servers:
        result = await survey(servers, keyspaces_of(docs), SurveyOptions(sample=0, budget=float("inf")))
    counts = {sample.keyspace.pattern: sample.count for sample in result.samples if sample.keyspace}
    return [msgspec.structs.replace(each, keys=counts.get(each.pattern)) for each in changes]


def keyspaces_of(docs: Iterable[KeyspaceDoc]) -> list[Keyspace[Any]]:
    """Keyspaces with these patterns, to find keys by; their values are not read."""
    catalogue = Catalogue("earlier")
    for doc in docs:
        options: KeyspaceOptions = {
            "lifetime": permanent(reason="not written"),
            "purpose": doc.purpose or "?",
        }
        if doc.hash_tag is not None:
            options["hash_tag"] = doc.hash_tag
        if doc.kind != "channel":
            catalogue.value(typed_pattern(doc), bytes, **options)
    return list(catalogue)


def _keys_of(doc: KeyspaceDoc) -> str:
    """The same text for patterns that render the same keys."""
    tagged = doc.pattern.replace(f"{{{doc.hash_tag}}}", "{{}}") if doc.hash_tag else doc.pattern
    return ("channel " if doc.kind == "channel" else "") + re.sub(r"\{\w+\}", "{}", tagged)


def _change(kind: str, pattern: str, message: str, advice: str = "") -> PlannedChange:
    return PlannedChange(
        kind=kind, severity=_SEVERITIES[kind], pattern=pattern, message=message, advice=advice
    )


def _gone(doc: KeyspaceDoc) -> Iterator[tuple[str, ...]]:
    ends = "they never end" if doc.lifetime_ms is None else f"the last ends {_after(doc.lifetime_ms)}"
    yield "orphaned", f"nothing declares these keys any more; {ends}", "remove them with `ephemera sweep`"


def _changes(old: KeyspaceDoc, new: KeyspaceDoc) -> Iterator[tuple[str, ...]]:
    before, now = (_REDIS_TYPES.get(kind, kind) for kind in (old.kind, new.kind))
    if before != now:
        advice = "use another pattern, and sweep the old keys"
        yield "wrong-type", f"keys are of type {before}, commands for {now} fail with WRONGTYPE", advice
        return
    yield from _readability(old, new)
    if old.role != new.role:
        advice = "if the roles have servers of their own, move the keys, or let them end before the switch"
        yield "moved", f"role {old.role} becomes {new.role}: new code looks on another server", advice
    yield from _lifetimes(old, new)
    if old.sensitive and not new.sensitive:
        yield "no-longer-sensitive", "keys and values will be shown by audits, logs and the console"


def _readability(old: KeyspaceDoc, new: KeyspaceDoc) -> Iterator[tuple[str, ...]]:
    unread = list(_unreadable(old, new))
    if unread:
        advice = "give new fields a default and keep types, or use another pattern"
        yield "unreadable", f"stored values read as misses: {'; '.join(unread)}", advice
        return
    unread = list(_unreadable(new, old))
    if unread:
        advice = "deploy code that reads both first"
        message = f"while both run, old code reads new values as misses: {'; '.join(unread)}"
        yield "unreadable-by-old-code", message, advice


def _unreadable(written: KeyspaceDoc, read: KeyspaceDoc) -> Iterator[str]:
    """Why values that one declaration wrote cannot be read by another."""
    if written.kind != read.kind:
        yield f"{written.kind} became {read.kind}"
    elif not (written.fields and read.fields) and not _reads(written.holds, read.holds):
        yield f"{written.holds or 'nothing'} became {read.holds or 'nothing'}"
    stored: dict[str, FieldDoc] = {field.name: field for field in written.fields}
    for field in read.fields if written.fields else ():
        if field.name not in stored and field.default is None:
            yield f"{field.name} is missing and has no default"
        elif field.name in stored and not _reads(
            stored[field.name].type, field.type, as_text=read.kind in ("hash", "stream")
        ):
            yield f"{field.name} was {stored[field.name].type} and is {field.type}"


def _reads(written: str, read: str, *, as_text: bool = False) -> bool:
    """Whether every value of one type is a value of the other, as far as their names tell.

    A hash stores numbers as text, which any `str` reads.
    """
    accepted = set(read.split(" | "))
    if as_text and "str" in accepted:
        accepted |= {"int", "float"}
    if "float" in accepted:
        accepted.add("int")
    return set(written.split(" | ")) <= accepted


def _lifetimes(old: KeyspaceDoc, new: KeyspaceDoc) -> Iterator[tuple[str, ...]]:
    before, now = old.lifetime_ms, new.lifetime_ms
    permanent_before, permanent_now = (doc.lifetime.startswith("permanent") for doc in (old, new))
    if permanent_before and not permanent_now:
        yield (
            "never-expires",
            "existing keys have no TTL, until something writes them again",
            "set one: EXPIRE",
        )
    elif permanent_now and not permanent_before:
        yield "will-vanish", "existing keys have a TTL, and end unless something writes them"
    elif before is not None and now is not None and before != now:
        kind = "shorter-lifetime" if now < before else "longer-lifetime"
        message = f"{old.lifetime} becomes {new.lifetime}"
        if now < before:
            message += f"; an audit finds keys with too long a TTL until {_after(before)}"
        yield kind, message


def _after(milliseconds: int) -> str:
    return f"{format_duration(milliseconds)} after the change"
