"""Scripture's row: how long the import of a whole translation takes.

A turn imports 31,102 generated verses, as many as a translation has, with `import_file`, which is what
`ephemera ingest` calls: into an empty database, on embedded servers, under the lock. It then counts what SQL
has, and imports the file once more, which must change nothing and is not measured. The words of the verses
are as unevenly frequent as those of a text, because the index of the search is written with them.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from benchmarks.rows import Absolute, Round, Row
from benchmarks.servers import Servers
from ephemera.embedded import Postgres

VERSES = 31_102
_CHAPTER, _BOOK = 30, 40  # verses of a chapter, chapters of a book
_WORDS = 12_000  # different ones, about as many as the King James Version has


def _write_table(path: Path) -> None:
    """Write a translation of 20 to 30 words a verse."""
    from ephemera_services.scripture.records import BOOKS

    chance, books = random.Random(31_102), list(BOOKS)
    words = [f"word{number}" for number in range(_WORDS)]
    weights = [1 / (rank + 1) for rank in range(_WORDS)]
    with path.open("w", encoding="utf-8") as table:
        table.write("reference\ttext\n")
        for number in range(VERSES):
            chapter, verse = divmod(number, _CHAPTER)
            book, chapter = divmod(chapter, _BOOK)
            text = " ".join(chance.choices(words, weights, k=chance.randint(20, 30)))
            table.write(f"{books[book]}.{chapter + 1}.{verse + 1}\t{text}\n")


async def _import(servers: Servers, database: str, table: Path) -> int:
    """Import the translation; return how many verses were new or changed."""
    from ephemera_services.runtime import read_settings
    from ephemera_services.scripture import ImportOptions, Settings, import_file

    variables = {"EPHEMERA_URL": servers.valkey.url, "EPHEMERA_DATABASE_URL": database}
    settings = read_settings(Settings, variables)
    done = await import_file(settings, ImportOptions(table, "generated"), lambda _: None)
    return done.changed


def _stored(database: str) -> int:
    with psycopg.connect(database) as sql:
        row = sql.execute("SELECT count(*) FROM scripture.texts WHERE translation = 'generated'").fetchone()
    return 0 if row is None else int(row[0])


async def _seconds(servers: Servers, postgres: Postgres, table: Path) -> float:
    database = await asyncio.to_thread(postgres.database, f"import_{uuid4().hex[:12]}")
    began = time.perf_counter()
    changed = await _import(servers, database, table)
    took = time.perf_counter() - began
    stored, again = await asyncio.to_thread(_stored, database), await _import(servers, database, table)
    if (changed, stored, again) != (VERSES, VERSES, 0):
        raise RuntimeError(f"imported {changed}, stored {stored}, and changed {again} when repeated")
    return took


@asynccontextmanager
async def _whole_translation(servers: Servers) -> AsyncIterator[Round]:
    from ephemera.keyspace import SERVER_IDENTITY

    servers.valkey.ask("SET", SERVER_IDENTITY.key(), "scripture")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "generated.tsv"
        await asyncio.to_thread(_write_table, table)

        async def took(_: float) -> float:
            return await _seconds(servers, servers.postgres, table)

        yield took


ROWS = (
    Row(
        "scripture: ingest of 31,000 verses",
        _whole_translation,
        targets=(Absolute(60, "s", at_most=True),),
        unit="s",
        higher_is_better=False,
        patience=180.0,  # it is imported twice
        turn=0.1,
    ),
)
