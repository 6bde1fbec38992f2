"""`ephemera ingest`: whole translations and lexicons from OSIS and TSV files, streamed, again and hostile."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from ephemera_services.runtime import read_settings
from ephemera_services.scripture import ImportOptions, ImportProgress, Settings, import_file
from ephemera_services.scripture.source_files import OsisSource, SourceError, SourceVerse, TsvSource
from tests.cli.commands import ephemera
from tests.services.scripture_apps import Gateway, open_gateway

_OSIS = """<?xml version="1.0" encoding="UTF-8"?>
<osis xmlns="http://www.bibletechnologies.net/2003/OSIS/namespace"><osisText osisIDWork="T">
<header><work osisWork="T"><title>Test Bible</title><rights>Public domain</rights></work>
<work osisWork="other"><title>Another</title></work></header>{body}</osisText></osis>"""
_VERSES = """
<div type="book" osisID="Gen"><chapter osisID="Gen.1"><title>Creation</title>
<verse osisID="Gen.1.1">In the <w lemma="strong:H7225">beginning</w><note>Or, start</note>
<divineName>God</divineName> created</verse>
<verse sID="Gen.1.2" osisID="Gen.1.2"/>And the<lb/>earth<title>x</title> was void.<verse eID="Gen.1.2"/>
between
<verse osisID="Gen.1.3"> </verse></chapter></div>
<div type="book" osisID="Tob"><chapter osisID="Tob.1"><verse osisID="Tob.1.1">Not canonical</verse></chapter>
</div><div type="book" osisID="1John"><chapter sID="1John.4"/>
<verse osisID="Bible:1John.4.8 Bible:1John.4.9">God &amp; love</verse></div>
"""
_TSV = "reference\ttext\nGen.1.1\tIn the beginning\nPsalms 23:1\tA shepherd\n1 John 4:8\tGod is love\n"


def _osis(body: str) -> OsisSource:
    return OsisSource(io.BytesIO(_OSIS.format(body=body).encode()))


def test_osis_is_read_in_both_of_its_forms() -> None:
    """Elements and milestones are verses; notes, titles and empty verses are not, nor other canons."""
    source = _osis(_VERSES)
    assert list(source) == [
        SourceVerse("gen", 1, 1, "In the beginning God created"),
        SourceVerse("gen", 1, 2, "And the earth was void."),
        SourceVerse("1john", 4, 8, "God & love"),
    ]
    assert (source.title, source.rights) == ("Test Bible", "Public domain")
    assert source.skipped == {"without text": 1, "book 'Tob'": 1}


def test_what_is_skipped_is_counted_within_bounds() -> None:
    """However many books are unknown, a hundred of them are named, and the others are counted together."""
    unknown = ("".join("ABCDEFGHIJ"[int(digit)] for digit in f"{n:03}") for n in range(300))
    source = _osis("".join(f'<verse osisID="{book}.1.1">x</verse>' for book in unknown))
    assert list(source) == []
    assert len(source.skipped) == 101
    assert source.skipped["other books"] == 200


def test_tsv_is_read_by_its_columns() -> None:
    """Verses by reference or by number, or a lexicon, with numbers as Strong's has them."""
    assert list(TsvSource(io.BytesIO(_TSV.encode()))) == [
        SourceVerse("gen", 1, 1, "In the beginning"),
        SourceVerse("ps", 23, 1, "A shepherd"),
        SourceVerse("1john", 4, 8, "God is love"),
    ]
    numbers = "text\tbook\tchapter\tverse\r\nHope\tRom\t8\t24\r\n"
    assert list(TsvSource(io.BytesIO(numbers.encode("utf-8-sig")))) == [SourceVerse("rom", 8, 24, "Hope")]
    words = "id\tlemma\ttransliteration\tgloss\tdefinition\nH02617\tאָב\tab\tfather\tA father.\n"
    (entry,) = TsvSource(io.BytesIO(words.encode()))
    assert (entry["id"], entry["language"], entry["lemma"]) == ("h2617", "hebrew", "אָב")


_BOMB = '<!DOCTYPE o [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><osis>&b;</osis>'
_OUTSIDE = (
    '<!DOCTYPE o [<!ENTITY a SYSTEM "file:///etc/passwd">]><osis><verse osisID="Gen.1.1">&a;</verse></osis>'
)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (_BOMB, "a document type declaration is not accepted"),
        (_OUTSIDE, "a document type declaration is not accepted"),
        ('<!DOCTYPE o SYSTEM "http://127.0.0.1/x.dtd"><osis/>', "a document type declaration"),
        ("<a>" * 100, "nested more than 64 deep"),
        (f'<o><verse sID="Gen.1.1"/>{"x" * 5000}</o>', "more than 4000 characters"),
        (f'<o><verse sID="Gen.1.1"/>{"<lb/>" * 5000}</o>', "more than 4000 characters"),
        (f'<o><verse osisID="{"x" * 2_000_000}"/></o>', "a tag or a comment has more than 1048576 bytes"),
        (f"<o><!--{'x' * 2_000_000}--></o>", "a tag or a comment has more than 1048576 bytes"),
        ('<o><verse osisID="&undefined;"/></o>', "undefined entity"),
        ('<o><verse osisID=" ">x</verse></o>', "'' is not the id of a verse"),
        ('<o><verse osisID="Gen.1">x</verse></o>', "'Gen.1' is not the id of a verse"),
        ("<o><verse", "unclosed token"),
        ("", "no element found"),
    ],
)
def test_hostile_osis_is_refused(document: str, problem: str) -> None:
    """No entity is ever expanded, and nothing grows without a bound; the error names the line."""
    with pytest.raises(SourceError, match=rf"line \d+: .*{problem}"):
        list(OsisSource(io.BytesIO(document.encode())))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (b"a\tb\n", "line 1: the columns must be"),
        (b"reference\ttext\nGen.1.1\n", "line 2: it has 1 columns, not 2"),
        (b"reference\ttext\nsomewhere\tx\n", "line 2: 'somewhere' is not a verse"),
        (b"reference\ttext\nGen.1.1\t\xff\n", "not UTF-8"),
        (b"reference\ttext\nGen.1.1\t" + b"x" * 30_000, "more than 20000 bytes"),
        (b"book\tchapter\tverse\ttext\nGen\tone\t1\tx\n", "line 2: chapter and verse must be numbers"),
        (b"book\tchapter\tverse\ttext\nGen\t" + b"9" * 5000 + b"\t1\tx\n", "chapter and verse must be"),
        (b"id\tlemma\ttransliteration\tgloss\tdefinition\nX1\ta\tb\tc\td\n", "line 2: 'X1' is not the id"),
    ],
)
def test_a_wrong_table_is_refused(table: bytes, problem: str) -> None:
    """The error says which line, and what is wrong with it."""
    with pytest.raises(SourceError, match=problem):
        list(TsvSource(io.BytesIO(table)))


def _table(folder: Path, verses: int, text: str = "Verse", name: str = "test.tsv") -> Path:
    lines = (f"gen.{n // 100 + 1}.{n % 100 + 1}\t{text} number{n}" for n in range(verses))
    file = folder / name
    file.write_text("reference\ttext\n" + "\n".join(lines) + "\n")
    return file


async def _import(gateway: Gateway, file: Path, **more: Any) -> tuple[ImportProgress, int]:
    """What an import did, and how many batches it had."""
    settings, batches = read_settings(Settings, gateway.variables), []
    options = ImportOptions(file, **{"translation": "test", **more})
    done = await import_file(settings, options, lambda progress: batches.append(progress.share))
    return done, len(batches)


async def test_an_import_continues_where_it_was_interrupted(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """What was committed stays and is not written again; a whole second run changes nothing."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        file = _table(tmp_path, 2500)
        with file.open("a") as table:
            table.write("gen.1.1\tTwice\n")
        with pytest.raises(SourceError, match=r"the file has gen\.1\.1 twice"):
            await _import(gateway, file)
        assert await _verses(gateway) == 2000, "two batches were committed"
        assert await gateway.found("number1999") == ["gen.20.100"]
        assert server.ask("EXISTS", "gl:lock:ingest:{passages}") == 0

        done, batches = await _import(gateway, _table(tmp_path, 2500))
        assert (done.read, done.changed, batches) == (2500, 500, 3)
        done, _ = await _import(gateway, _table(tmp_path, 2500))
        assert (done.read, done.changed) == (2500, 0)
        assert await _verses(gateway) == 2500


async def test_an_import_is_seen_by_readers_at_once(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """Cached chapters, books and translations change with it; with `replace`, what it lacks is deleted."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        await gateway.ingest(("gen.1.1", "Old"), ("gen.1.2", "Left"), ("rev.1.1", "Also left"))
        assert [each["text"] for each in (await _chapter(gateway))["verses"]] == ["Old", "Left"]
        books = await gateway.get("/books", translation="test")
        assert [each["id"] for each in books["books"]] == ["gen", "rev"]
        file = tmp_path / "new.osis"
        file.write_text(_OSIS.format(body='<verse osisID="Gen.1.1">New</verse>'))
        done, _ = await _import(gateway, file, replace=True)
        assert (done.changed, done.deleted) == (1, 2)
        assert [each["text"] for each in (await _chapter(gateway))["verses"]] == ["New"]
        books = await gateway.get("/books", translation="test")
        assert books["books"] == [{"id": "gen", "name": "Genesis", "chapters": {"1": 1}}]
        (test,) = [
            each for each in (await gateway.get("/translations"))["translations"] if each["id"] == "test"
        ]
        assert test == {"id": "test", "name": "Test Bible", "rights": "Public domain", "verses": 1}
        assert (await gateway.ask("GET", "/passages/rev.1.1")).status_code == 404


async def _verses(gateway: Gateway) -> int:
    found = await gateway.get("/translations")
    return sum(each["verses"] for each in found["translations"] if each["id"] == "test")


async def _chapter(gateway: Gateway) -> Any:
    return await gateway.get("/chapters/gen.1", translation="test")


async def test_an_import_waits_for_no_other_ingest(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """While another ingest has the lock the command ends with one line that says so; nothing is written."""
    async with open_gateway(server, postgres, tmp_path) as gateway:
        server.ask("SET", "gl:lock:ingest:{passages}", "another", "EX", "120")
        file = _table(tmp_path, 3)
        settings = read_settings(Settings, gateway.variables)
        with pytest.raises(Exception, match="409 Conflict: An ingest of this schema is in progress"):
            await import_file(settings, ImportOptions(file, "test"), lambda _: None)
        assert await _verses(gateway) == 0


def test_the_command_imports_a_lexicon_and_reports(
    server: Valkey, postgres: Postgres, tmp_path: Path
) -> None:
    """It says what is new and what is as before; a wrong file or option is one line."""
    server.ask("FLUSHALL")
    server.ask("SET", "ephemera:identity", "scripture")
    servers = ("--url", server.url, "--database-url", postgres.database("scripture_import"))
    file = tmp_path / "words.tsv"
    file.write_text("id\tlemma\ttransliteration\tgloss\tdefinition\nH2617\tאָב\tab\tfather\tA father.\n")
    first, again = (ephemera("ingest", str(file), *servers) for _ in range(2))
    assert (first.code, first.out.strip()) == (0, "1 entries: 1 new or changed, 0 as before")
    assert again.out.strip() == "1 entries: 0 new or changed, 1 as before"
    unnamed = ephemera("ingest", str(_table(tmp_path, 1)), *servers)
    assert (unnamed.code, "name the translation" in unnamed.err) == (1, True)
    binary = tmp_path / "bible.bin"
    binary.write_bytes(b"\x00")
    refused = ephemera("ingest", str(binary), *servers)
    assert (refused.code, "neither OSIS" in refused.err) == (1, True)
