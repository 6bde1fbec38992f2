"""The corpus that comes with the service: some chapters in the public domain, taken in at the first start.

Genesis 1:1-5, Psalms 23 and 117, John 1:1-5 and 3:16-17 and 1 Corinthians 13 in the World English Bible and
the King James Version; topics, and a small lexicon of our own words. The files have the form that
`POST /ingest/...` takes.
"""

from __future__ import annotations

import logging
from importlib.resources import files

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.scripture.ingest_forms import Document, LexiconDocument, PassageDocument, TopicDocument
from ephemera_services.scripture.ingest_writes import write
from ephemera_services.scripture.tables import passages

SCHEMAS: dict[str, type[Document]] = {
    "passages": PassageDocument,
    "topics": TopicDocument,
    "lexicon": LexiconDocument,
}
"""What can be taken in, and its form."""

logger = logging.getLogger(__name__)


async def have_corpus(sql: AsyncConnection) -> None:
    """Take the corpus in, unless there is content already."""
    if (await sql.execute(select(passages.c.id).limit(1))).one_or_none() is not None:
        return
    for schema, form in SCHEMAS.items():
        await write(sql, schema, form.model_validate_json(shipped(schema)), "the first start")
    logger.info("the corpus was taken in")


def shipped(schema: str) -> bytes:
    """The document of a schema that comes with the service."""
    return files("ephemera_services.scripture").joinpath("corpus", f"{schema}.json").read_bytes()
