"""The `env.py` of docs/operations/migrations.md, in a project of Alembic's own layout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from ephemera.embedded import Postgres
from ephemera.sql import migrate
from tests.docs.pages import ROOT, blocks
from tests.sql.databases import empty_database
from tests.sql.declared_tables import Declared

ENV = next(
    block.text
    for block in blocks()
    if block.page == "docs/operations/migrations.md" and block.text.startswith("# env.py")
)
WITH_OURS = """
import sqlalchemy as sa
from tests.sql.declared_tables import Declared
metadata = Declared(sa.MetaData(schema="app")).metadata
"""
WITHOUT = "import sqlalchemy as sa\nmetadata = sa.MetaData()\n"


@pytest.mark.parametrize("tables", [WITH_OURS, WITHOUT], ids=["ours", "without"])
async def test_alembic_check_finds_nothing_to_do(postgres: Postgres, tmp_path: Path, tables: str) -> None:
    """`alembic check` with the page's env.py passes, with our tables in the metadata and without them."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV, encoding="utf-8")
    (tmp_path / "shop_tables.py").write_text(tables, encoding="utf-8")
    async with empty_database(postgres) as engine:
        await migrate(engine, *Declared(sa.MetaData(schema="app")).all)
        url = engine.url.render_as_string(hide_password=False).replace("%", "%%")
        (tmp_path / "alembic.ini").write_text(
            f"[alembic]\nscript_location = .\nsqlalchemy.url = {url}\n", encoding="utf-8"
        )
        path = os.pathsep.join((str(tmp_path), str(ROOT), *filter(None, sys.path)))
        done = subprocess.run(
            [sys.executable, "-m", "alembic", "check"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "No new upgrade operations detected.\n"), done.stderr
