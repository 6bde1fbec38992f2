"""Content worth asking for: search with ranking, lists, and content that is replaced or deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ephemera.embedded import Postgres, Valkey
from tests.services.scripture_apps import Gateway, open_gateway, verse_of

_VERSES = (
    ("john.10.11", "I am the good shepherd: the good shepherd giveth his life for the sheep."),
    ("gen.4.9", "And he said, I know not: he said, he said."),
    ("gen.3.1", "He said unto the woman, and said."),
    ("gen.9.1", "And God said unto them, be fruitful."),
    ("exod.3.1", "Moses kept the flock of Jethro, and led it to the backside of the desert."),
    ("exod.3.2", "The flock was there, said Moses; a shepherd said: this is a flock of sheep, said they."),
    ("ps.119.1", "Blessed are the undefiled in the way."),
)


@pytest.fixture
async def gateway(server: Valkey, postgres: Postgres, tmp_path: Path) -> AsyncIterator[Gateway]:
    """A service with some verses of a translation of its own."""
    async with open_gateway(server, postgres, tmp_path) as opened:
        await opened.ingest(*_VERSES)
        yield opened


async def test_rare_words_weigh_more_than_common_ones(gateway: Gateway) -> None:
    """A question about what a shepherd said finds shepherds first, however often others "said"."""
    found = await gateway.found("said or shepherd")
    assert set(found[:2]) == {"john.10.11", "exod.3.2"}
    assert set(found[2:]) == {"gen.4.9", "gen.3.1", "gen.9.1"}
    asked = {"question": "What is said of the shepherd?", "translation": "test"}
    answer = (await gateway.ask("POST", "/ai/ask", json=asked)).json()
    assert {each["id"] for each in answer["passages"][:2]} == {"john.10.11", "exod.3.2"}


async def test_what_is_asked_about_counts_and_not_that_it_is_asked(gateway: Gateway) -> None:
    """Of a question about what is said, verses with "said" are found only if nothing else matches."""

    async def passages(question: str) -> set[str]:
        asked = {"question": question, "translation": "test"}
        return {each["id"] for each in (await gateway.ask("POST", "/ai/ask", json=asked)).json()["passages"]}

    assert await passages("What is said about Moses?") == {"exod.3.1", "exod.3.2"}
    assert await passages("Who said that?") == {"gen.4.9", "gen.3.1", "gen.9.1", "exod.3.2"}


async def test_rare_words_outweigh_short_verses(gateway: Gateway) -> None:
    """A long verse with a rare word is before a short one with a common word."""
    await gateway.ingest(
        *((f"lev.1.{verse}", "He said.") for verse in range(1, 6)),
        ("lev.2.1", "For so it is, and love was there for all of them who went up to the hill by the river."),
        *(
            (f"lev.3.{verse}", f"Love of field {verse}, wide and green and far beyond the hills.")
            for verse in (1, 2)
        ),
    )
    found = await gateway.found("said or love")
    assert set(found[:3]) == {"lev.2.1", "lev.3.1", "lev.3.2"}


async def test_a_search_without_a_match_of_all_words_finds_some(gateway: Gateway) -> None:
    """Each result says whether it has all words; quotes and exclusions are taken at their word."""
    page = await gateway.get("/search", q="undefiled shepherd", translation="test")
    assert (page["matched"], page["total"]) == ("any", 3)
    words, found = "undefiled shepherd", [each["id"] for each in page["passages"]]
    for offset, rest in ((1, found[1:]), (3, [])):
        page = await gateway.get("/search", q=words, translation="test", offset=offset)
        assert (page["matched"], [each["id"] for each in page["passages"]]) == ("any", rest)
    page = await gateway.get("/search", q="good shepherd", translation="test")
    assert (page["matched"], [each["id"] for each in page["passages"]]) == ("all", ["john.10.11"])
    assert await gateway.found('"shepherd good"') == []
    assert await gateway.found("shepherd -good") == ["exod.3.2"]
    assert await gateway.found("the of and") == []
    assert await gateway.found("' \\ & | ! : * <-> shepherd") == ["john.10.11", "exod.3.2"]


async def test_hits_are_highlighted_filtered_and_paged(gateway: Gateway) -> None:
    """Highlights are positions in the text; a book filters; pages neither overlap nor leave gaps."""
    (hit,) = (await gateway.get("/search", q="shepherds", translation="test", book="john"))["passages"]
    assert [hit["text"][start:end] for start, end in hit["highlights"]] == ["shepherd", "shepherd"]
    everything = await gateway.found("said")
    assert len(everything) == 4
    paged: list[str] = []
    offset: Any = 0
    while offset is not None:
        page = await gateway.get("/search", q="said", translation="test", limit=3, offset=offset)
        assert page["total"] == 4
        paged += [each["id"] for each in page["passages"]]
        offset = page["next"]
    assert paged == everything
    assert (await gateway.ask("GET", "/search", params={"q": "x", "book": "../x"})).status_code == 422
    assert await gateway.found("said", book="rev") == []


async def test_everything_is_listed(gateway: Gateway) -> None:
    """Translations and books with their numbers of verses, and topics a page at a time."""
    translations = {each["id"]: each for each in (await gateway.get("/translations"))["translations"]}
    assert translations["kjv"]["name"] == "King James Version"
    assert translations["test"] == {"id": "test", "name": "TEST", "rights": "", "verses": len(_VERSES)}
    books = (await gateway.get("/books", translation="test"))["books"]
    assert [each["id"] for each in books] == ["gen", "exod", "ps", "john"], "in the usual order"
    assert books[1] == {"id": "exod", "name": "Exodus", "chapters": {"3": 2}}
    assert (await gateway.ask("GET", "/books", params={"translation": "none"})).status_code == 404
    ids: list[str] = []
    after: Any = None
    while True:
        page = await gateway.get("/topics", limit=1, **({} if after is None else {"after": after}))
        ids += [each["id"] for each in page["topics"]]
        if (after := page["next"]) is None:
            break
    assert ids == sorted(ids)
    assert {"love", "trust"} <= set(ids)


async def test_a_chapter_is_replaced_as_a_whole(gateway: Gateway) -> None:
    """What is not sent is deleted; readers, lists and searches see it at once, other chapters stay."""
    chapter = {"translation": "test"}
    assert len((await gateway.get("/chapters/exod.3", **chapter))["verses"]) == 2
    await gateway.get("/books", **chapter)
    replaced = {"book": "exod", "chapter": 3, **chapter}
    items = [verse_of("exod.3.2", "Now a bush."), verse_of("exod.3.3", "It burns.")]
    done = await gateway.admin("PUT", "/ingest/chapters", params=replaced, json={"items": items})
    assert done["passages"] == ["exod.3.1", "exod.3.2", "exod.3.3"]
    verses = (await gateway.get("/chapters/exod.3", **chapter))["verses"]
    assert [(each["verse"], each["text"]) for each in verses] == [(2, "Now a bush."), (3, "It burns.")]
    assert await gateway.found("flock") == []
    assert (await gateway.ask("GET", "/passages/exod.3.1")).status_code == 404
    for wrong in (verse_of("exod.4.1", "x"), verse_of("exod.3.1", "x", "kjv")):
        refused = await gateway.ask(
            "PUT", "/ingest/chapters", role="admin", params=replaced, json={"items": [wrong]}
        )
        assert refused.status_code == 422


async def test_content_is_deleted_exactly(gateway: Gateway, server: Valkey) -> None:
    """A text, a passage, a topic, a word or a translation is gone at once, and nothing else."""
    await gateway.get("/passages/john.3.16")
    await gateway.get("/passages/john.3.17")
    one = await gateway.admin("DELETE", "/ingest/passages/john.3.17", params={"translation": "kjv"})
    assert one["chapters"] == [{"book_id": "john", "chapter": 3, "translation": "kjv"}]
    assert "kjv" not in (await gateway.get("/passages/john.3.17"))["texts"]
    assert server.ask("EXISTS", "gl:passage:{john.3.16}") == 1, "what did not change stays cached"

    named = await gateway.ask("DELETE", "/ingest/passages/john.3.16", role="admin")
    assert (named.status_code, "love" in named.json()["detail"]) == (409, True)
    await gateway.get("/topics/love")
    await gateway.get("/lexicon/g26")
    assert (await gateway.admin("DELETE", "/ingest/topics/love"))["topics"] == ["love"]
    assert (await gateway.admin("DELETE", "/ingest/lexicon/g26"))["lexicon"] == ["g26"]
    for path in ("/topics/love", "/lexicon/g26"):
        assert (await gateway.ask("GET", path)).status_code == 404

    empty = {"items": [{"book": "rev", "chapter": 22, "verse": 21}]}
    await gateway.admin("POST", "/ingest/passages", json=empty)
    assert (await gateway.admin("DELETE", "/ingest/passages/rev.22.21"))["passages"] == ["rev.22.21"]
    assert (await gateway.ask("GET", "/passages/rev.22.21")).status_code == 404

    whole = await gateway.admin("DELETE", "/ingest/translations/test")
    assert whole["passages"] == sorted(name for name, _ in _VERSES)
    assert (await gateway.ask("GET", "/chapters/gen.4", params={"translation": "test"})).status_code == 404
    assert "test" not in {each["id"] for each in (await gateway.get("/translations"))["translations"]}
    for path in ("passages/gen.4.9", "topics/love", "lexicon/g26", "translations/test"):
        assert (await gateway.ask("DELETE", f"/ingest/{path}", role="admin")).status_code == 404
        assert (await gateway.ask("DELETE", f"/ingest/{path}", role="user")).status_code == 403
        assert (await gateway.ask("DELETE", f"/ingest/{path}")).status_code == 401


async def test_topics_may_name_more_passages_than_a_statement_has_parameters(gateway: Gateway) -> None:
    """Unknown passages are named in a 422, however many they are."""
    ids = [f"ps.{number // 500 + 1}.{number % 500 + 1}" for number in range(70_000)]
    topics = [
        {"id": f"topic-{at}", "title": "T", "summary": "S", "passages": ids[at : at + 500]}
        for at in range(0, len(ids), 500)
    ]
    refused = await gateway.ask("POST", "/ingest/topics", role="admin", json={"items": topics})
    assert (refused.status_code, "does not have ps.1." in refused.json()["detail"]) == (422, True)
