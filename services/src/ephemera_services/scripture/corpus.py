"""The corpus that comes with the service: some chapters in the public domain, ingested at the first start.

In the King James Version: Genesis 1, Exodus 20:1-17, Psalms 1, 8, 19, 23, 46, 91, 100, 117, 121, 133 and 150,
Ecclesiastes 3:1-8, Isaiah 53, Matthew 5 and 6, John 1:1-29, 2:1-11 and 3:16-17, Romans 8, 1 Corinthians 13;
in the World English Bible a part of it. Topics, and a small lexicon written for this service. The files have
the formats of `POST /ingest/...` and of `ephemera ingest`.
"""

from __future__ import annotations

import io
import logging
from importlib.resources import files

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.scripture.content_writer import describe_translation, write
from ephemera_services.scripture.ingest_forms import Document, LexiconDocument, PassageDocument, TopicDocument
from ephemera_services.scripture.source_files import TsvSource
from ephemera_services.scripture.tables import passages

SCHEMAS: dict[str, type[Document]] = {
    "passages": PassageDocument,
    "topics": TopicDocument,
    "lexicon": LexiconDocument,
}
"""What can be ingested, and its format."""

logger = logging.getLogger(__name__)


_TRANSLATIONS = {
    "kjv": ("King James Version", "Public domain; in the United Kingdom under a Crown patent."),
    "web": ("World English Bible", "Public domain."),
}


async def ensure_corpus(sql: AsyncConnection) -> None:
    """Ingest the corpus, unless there is content already."""
    if (await sql.execute(select(passages.c.id).limit(1))).one_or_none() is not None:
        return
    for schema, form in SCHEMAS.items():
        await write(sql, schema, form.model_validate_json(shipped(f"{schema}.json")), "the first start")
    await write(sql, "passages", _king_james(), "the first start")
    for translation, (name, rights) in _TRANSLATIONS.items():
        await describe_translation(sql, translation, name, rights)
    logger.info("ingested the corpus")


def shipped(name: str) -> bytes:
    """A file that comes with the service."""
    return files("ephemera_services.scripture").joinpath("corpus", name).read_bytes()


def _king_james() -> PassageDocument:
    """The verses that are only in this translation."""
    verses = [
        {"book": each.book, "chapter": each.chapter, "verse": each.verse, "texts": {"kjv": each.text}}
        for each in TsvSource(io.BytesIO(shipped("kjv.tsv")))
    ]
    return PassageDocument.model_validate({"items": verses})
