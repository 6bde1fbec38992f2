"""The corpus that comes with the service: some chapters in the public domain, ingested at the first start.

Genesis 1:1-5, Psalms 23 and 117, John 1:1-5 and 3:16-17 and 1 Corinthians 13 in the World English Bible and
the King James Version; topics, and a small lexicon written for this service. The files have the
format of `POST /ingest/...`.
"""

from __future__ import annotations

import logging
from importlib.resources import files

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from ephemera_services.scripture.ingest import write
from ephemera_services.scripture.ingest_forms import Document, LexiconDocument, PassageDocument, TopicDocument
from ephemera_services.scripture.tables import passages

SCHEMAS: dict[str, type[Document]] = {
    "passages": PassageDocument,
    "topics": TopicDocument,
    "lexicon": LexiconDocument,
}
"""What can be ingested, and its format."""

logger = logging.getLogger(__name__)


async def ensure_corpus(sql: AsyncConnection) -> None:
    """Ingest the corpus, unless there is content already."""
    if (await sql.execute(select(passages.c.id).limit(1))).one_or_none() is not None:
        return
    for schema, form in SCHEMAS.items():
        await write(sql, schema, form.model_validate_json(shipped(schema)), "the first start")
    logger.info("ingested the corpus")


def shipped(schema: str) -> bytes:
    """The document of a schema that comes with the service."""
    return files("ephemera_services.scripture").joinpath("corpus", f"{schema}.json").read_bytes()
