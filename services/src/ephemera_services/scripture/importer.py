"""The import of a whole translation or lexicon from a file, by `ephemera ingest`.

A file is read and written a thousand items at a time, each in a transaction of its own, all under the lock of
its schema (`ingest`). An import that was interrupted keeps what it had committed; run again, it compares that
with the file, and continues where the two differ. So a second run of a whole file writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ephemera_services.runtime import open_resources, require_server_urls
from ephemera_services.scripture.app import service_definition
from ephemera_services.scripture.content_writer import describe_translation
from ephemera_services.scripture.events import ContentChanged
from ephemera_services.scripture.ingest import Ingest
from ephemera_services.scripture.ingest_forms import (
    Document,
    LexiconDocument,
    LexiconItem,
    PassageDocument,
    PassageItem,
)
from ephemera_services.scripture.invalidation import Invalidation
from ephemera_services.scripture.keys import TRANSLATIONS
from ephemera_services.scripture.outbox import Outbox
from ephemera_services.scripture.settings import Settings
from ephemera_services.scripture.source_files import Source, SourceError, open_source

_BATCH = 1000


@dataclass(frozen=True)
class ImportOptions:
    """What to import."""

    path: Path
    translation: str | None = None
    name: str | None = None
    """The translation's name; default: what the file says."""
    rights: str | None = None
    replace: bool = False
    """Delete the verses of the translation that the file does not have."""


@dataclass
class ImportProgress:
    """How far an import is."""

    schema: str = "passages"
    read: int = 0
    changed: int = 0
    deleted: int = 0
    share: float = 0.0
    """Of the file, from 0 to 1."""
    skipped: dict[str, int] = field(default_factory=dict)


async def import_file(
    settings: Settings, options: ImportOptions, on_progress: Callable[[ImportProgress], None]
) -> ImportProgress:
    """Import a file; when this returns, no reader sees the old content. `SourceError` if it is wrong."""
    require_server_urls(settings)
    size = options.path.stat().st_size
    with options.path.open("rb") as file:
        source = open_source(options.path, file)
        _check(source, options)
        async with AsyncExitStack() as stack:
            resources = await stack.enter_async_context(
                open_resources(settings, service_definition(settings))
            )
            engine, store = resources.engine, resources.store
            ingest = Ingest(engine, store, Outbox(engine, store), Invalidation(store))
            progress, seen = ImportProgress(source.schema), set[str]()

            def note(change: ContentChanged) -> None:
                progress.read = len(seen)
                progress.changed += len(change.passages) + len(change.lexicon)
                progress.share = source.position / max(size, 1)
                progress.skipped = dict(source.skipped)
                on_progress(progress)

            await ingest.ingest_all(source.schema, _documents(source, options.translation, seen), note)
            progress.read, progress.skipped = len(seen), dict(source.skipped)
            if options.translation is not None and seen:
                if options.replace:
                    left = await ingest.keep_only(options.translation, seen)
                    progress.deleted = len(left.change.passages)
                async with engine.begin() as sql:
                    name = options.name or source.title or options.translation.upper()
                    rights = source.rights if options.rights is None else options.rights
                    await describe_translation(sql, options.translation, name, rights.strip())
                await store[TRANSLATIONS].delete()
    return progress


def _check(source: Source, options: ImportOptions) -> None:
    if source.schema == "passages" and options.translation is None:
        raise SourceError("name the translation of these verses: --translation kjv")
    if source.schema == "lexicon" and (options.translation is not None or options.replace):
        raise SourceError("a lexicon has no translation, and entries are never deleted: omit these options")


def _documents(source: Source, translation: str | None, seen: set[str]) -> Iterator[Document]:
    """The items of a file in batches, each checked as if it had been sent to the service."""
    items = iter(source)
    while batch := list(islice(items, _BATCH)):
        if source.schema == "lexicon":
            entries = [_checked(LexiconItem, each, str(each["id"])) for each in batch]
            _refuse_repeated(entries, seen)
            yield LexiconDocument.model_construct(items=entries)
        else:
            verses = [
                _checked(
                    PassageItem,
                    {
                        "book": each.book,
                        "chapter": each.chapter,
                        "verse": each.verse,
                        "texts": {translation: each.text},
                    },
                    f"{each.book}.{each.chapter}.{each.verse}",
                )
                for each in batch
            ]
            _refuse_repeated(verses, seen)
            yield PassageDocument.model_construct(items=verses)


def _checked(form: type[Any], values: dict[str, Any], name: str) -> Any:
    try:
        return form.model_validate(values)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(each) for each in first["loc"])
        raise SourceError(f"{name}: {where}: {first['msg']}") from None


def _refuse_repeated(items: Iterable[Any], seen: set[str]) -> None:
    for item in items:
        if item.id in seen:
            raise SourceError(f"the file has {item.id} twice")
        seen.add(item.id)
