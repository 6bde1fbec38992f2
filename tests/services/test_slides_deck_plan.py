"""A deck without a model: every section, its figures and tables, and no sentence twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

import pytest

from ephemera_services import slides as package
from ephemera_services.slides import DEMO_DOCUMENT
from ephemera_services.slides.bullet_parts import MAX_WORDS, bullet_parts, figures_of
from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.deck import SlideContent, Table
from ephemera_services.slides.deck_plan import Section, plan_deck
from ephemera_services.slides.document_text import extract
from ephemera_services.slides.frame_words import frame_words
from ephemera_services.slides.key_sentences import MAX_BULLETS
from ephemera_services.slides.library import sections_of
from ephemera_services.slides.table_numbers import numbers
from ephemera_services.slides.text_structure import sentences

REPORT = """# Offshore wind in the North Sea

At the end of 2024 the North Sea had 34 GW of offshore wind, twice as much as in 2018.

## Costs

Costs fell by 12 % since 2019. A megawatt hour costs € 73 in the United Kingdom, which is less than the price
that was paid for gas on most days of the last winter, and € 62 in the Netherlands. Prof. de Vries expects
€ 55 in 2030. The tender of 3 March 2026 had no bids. Steel is dearer. Interest rates matter more than steel.
At the end of 2024 the North Sea had 34 GW of offshore wind, twice as much as in 2018.

| Country | 2018 | 2024 |
|---|---|---|
| UK | 98 | 73 |
| Germany | 91 | 80 |

## Grid

### Connections

Eleven projects wait for a grid connection. A connection takes 7 years.

### Stations

| Station | Maker | Due |
|---|---|---|
| IJmuiden Ver | Siemens | 2029 |
| Nederwiek | GE | 2030 |

## Wildlife

- Harbour porpoises avoid the noise of pile driving
- Bubble curtains halve it
"""


def _sections(text: str, name: str = "report.md") -> list[Section]:
    return sections_of(name, extract(BytesIO(text.encode())))


def _bullets(deck: Iterable[SlideContent]) -> list[str]:
    columns = [bullet for slide in deck for column in slide.columns for bullet in column.bullets]
    return columns + [bullet for slide in deck if slide.layout == "bullets" for bullet in slide.bullets]


def test_every_section_is_shown_in_the_order_of_the_document() -> None:
    """A title, an agenda, each section with its tables, and the sources; one that has none is a divider."""
    deck = plan_deck("Wind", 12, "en", _sections(REPORT))
    assert [(slide.layout, slide.title) for slide in deck] == [
        ("title", "Wind"),
        ("agenda", "Agenda"),
        ("bullets", "Offshore wind in the North Sea"),
        ("bullets", "Costs"),
        ("chart", "Costs: 2018, 2024"),
        ("section", "Grid"),
        ("bullets", "Connections"),
        ("table", "Stations"),
        ("bullets", "Wildlife"),
        ("closing", "Sources"),
    ]
    assert deck[0].bullets == ["Offshore wind in the North Sea"]
    headings = "Offshore wind in the North Sea, Costs, Grid, Wildlife"
    assert (deck[-1].bullets, deck[-1].sources) == ([], [f"report.md: {headings}"])
    assert not any("report.md" in bullet for slide in deck for bullet in slide.bullets), "shares show bullets"
    assert deck[1].bullets[:2] == ["Offshore wind in the North Sea", "Costs"]
    assert deck[5].bullets == ["Connections, Stations"], "a divider says what is behind it"


def test_bullets_are_short_few_and_said_once() -> None:
    """At most five of at most fifteen words; no sentence twice, no heading in one, figures and dates kept."""
    deck = plan_deck("Wind", 12, "en", _sections(REPORT))
    bullets = _bullets(deck)
    assert len(bullets) == len(set(bullets))
    assert all(len(slide.bullets) <= MAX_BULLETS for slide in deck if slide.layout == "bullets")
    assert all(len(bullet.split()) <= MAX_WORDS for bullet in bullets)
    headings = ("Costs Costs", "Connections Eleven", "Grid", "Wildlife Harbour")
    assert not any(heading in bullet for heading in headings for bullet in bullets)
    said = " ".join(bullets)
    for figure in ("34 GW", "2018", "12 %", "€ 55", "3 March 2026", "7 years"):
        assert figure in said, figure
    assert sum("34 GW" in bullet for bullet in bullets) == 1


def test_notes_have_the_source_passage() -> None:
    """What a slide leaves out of its section is in the speaker's notes, with the document's name."""
    costs = plan_deck("Wind", 12, "en", _sections(REPORT))[3]
    assert "Interest rates matter more than steel." in costs.notes
    assert "most days of the last winter" in costs.notes
    assert "report.md" in costs.notes
    assert costs.sources == ["report.md"]


@pytest.mark.parametrize("slides", [4, 6, 8, 14, 30])
def test_no_part_of_a_sentence_is_shown_twice(slides: int) -> None:
    """Long sentences that share a clause show it once, whichever of their parts are shown."""
    guide = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    bullets = [
        bullet.strip(".…").casefold() for bullet in _bullets(plan_deck("CLI", slides, "en", _sections(guide)))
    ]
    assert len(bullets) == len(set(bullets))
    shared = "Exit codes of this one are 0 for success, 1 for findings of any kind, and 2 for wrong usage"
    text = (
        f"## Audit\n\nIt reads keys. {shared} of flags.\n\n## Doctor\n\nIt asks servers. {shared} of names.\n"
    )
    bullets = _bullets(plan_deck("CLI", slides, "en", _sections(text)))
    assert sum("1 for findings" in bullet for bullet in bullets) == 1


def test_figures_come_before_sentences_without_any() -> None:
    """A part with a figure has room before a sentence without one, also if its sentence needs two bullets."""
    text = """## Where we stand

At the end of 2024 the North Sea had 34 GW of offshore wind, twice as much as in the record year 2018. A third
of it was added since 2021. The largest park has 165 turbines. Seven countries share the sea. Of all turbines
98 % stand on the ground.
"""
    bullets = _bullets(plan_deck("Wind", 8, "en", _sections(text)))
    said = " ".join(bullets)
    for figure in ("34 GW", "record year 2018", "since 2021", "165", "98 %"):
        assert figure in said, figure
    assert "Seven countries" not in said


def test_subsections_that_share_a_slide_each_have_a_bullet() -> None:
    """However few slides are wanted, no subsection vanishes behind others with more figures."""
    parts = [f"### Part {at}\n\n{_PART.format(at=at)}\n\n" for at in range(12)]
    text = f"## One\n\n{''.join(parts[:6])}## Two\n\n{''.join(parts[6:])}"
    deck = plan_deck("Parts", 6, "en", _sections(text))
    said = " ".join(_bullets(deck))
    for at in range(12):
        assert f"part {at} " in said, at
    assert all(len(column.bullets) <= MAX_BULLETS for slide in deck for column in slide.columns)


_PART = "This is about part {at} only. " + " ".join(
    f"In 20{year} part {{at}} had {year} tonnes." for year in range(10, 14)
)


def test_columns_have_all_bullets_of_their_sections() -> None:
    """Two sections that share a slide keep their fifth bullets."""
    text = "".join(
        f"## Part {at}\n\n"
        + " ".join(f"In 20{year} it had {at}{year} tonnes." for year in range(10, 15))
        + "\n\n"
        for at in range(1, 9)
    )
    said = " ".join(_bullets(plan_deck("Parts", 7, "en", _sections(text))))
    assert all(f"{at}{year} tonnes" in said for at in range(1, 9) for year in range(10, 15))


@pytest.mark.parametrize("slides", [1, 2, 4, 5, 6, 8, 30])
def test_nothing_is_left_out_of_a_short_deck(slides: int) -> None:
    """Whatever number was wanted, each table and the figures of each section are somewhere."""
    deck = plan_deck("Wind", slides, "en", _sections(REPORT))
    said = " ".join(_bullets(deck))
    for shown in ("34 GW", "12 %", "7 years"):
        assert shown in said, shown
    assert len([slide for slide in deck if slide.table is not None]) == 2
    assert len(_bullets(deck)) == len(set(_bullets(deck)))


def test_sections_share_a_slide_where_there_is_little_room() -> None:
    """Two neighbours are two columns, each below its heading."""
    text = "".join(f"## Part {at}\n\nThis is what part {at} says about it.\n\n" for at in range(8))
    deck = plan_deck("Parts", 8, "en", _sections(text))
    assert len(deck) == 8
    columns = [column.heading for slide in deck for column in slide.columns]
    alone = [slide.title for slide in deck if slide.layout == "bullets"]
    assert sorted(columns + alone) == [f"Part {at}" for at in range(8)]


def test_a_text_without_headings_is_divided() -> None:
    """Paragraphs become as many slides as there is room for, titled by their own words."""
    deck = plan_deck("Whales", 7, "en", _sections(DEMO_DOCUMENT, "whales.txt"))
    assert len(deck) == 7
    known = set(sentences(DEMO_DOCUMENT))
    first, *others = (slide for slide in deck if slide.layout == "bullets")
    assert f"{first.title}{first.bullets[0]}".replace("……", " ") in known, "it goes on from its title"
    assert set(_bullets(others)) <= known
    said = [f"{first.title}{first.bullets[0]}".replace("……", " "), *_bullets(others)]
    said += [f"{slide.title}." for slide in others]
    assert known <= set(said), "a sentence that is a title is not repeated"


def test_a_long_section_alone_is_divided() -> None:
    """A text below a single heading has the heading as its title, and a slide for each paragraph."""
    paragraphs = [f"Paragraph {at} begins. Its number is {at}." for at in range(4)]
    deck = plan_deck("Minutes", 7, "en", _sections("# The council\n\n" + "\n\n".join(paragraphs)))
    assert deck[0].bullets == ["The council"]
    assert [slide.title for slide in deck[2:-1]] == [f"Paragraph {at} begins" for at in range(4)]


def test_the_agenda_has_the_chapters() -> None:
    """Those without subsections too; headings are without their numbers, which the agenda has itself."""
    text = "".join(
        f"# {number} {name}\n\n{text}\n\n"
        for number, name, text in (
            ("1", "Summary", "All is well."),
            ("2", "Results", "## 2.1 Grid\n\nIt grew.\n\n## 2.2 Costs\n\nThey fell."),
            ("3", "Outlook", "It rises."),
        )
    )
    deck = plan_deck("Wind", 12, "en", _sections(text))
    assert deck[1].bullets == ["Summary", "Results", "Outlook"]
    assert [slide.title for slide in deck[2:-1]] == ["Summary", "Results", "Grid", "Costs", "Outlook"]
    dates = plan_deck("X", 9, "en", _sections("# 5 May\n\nWe met.\n\n# 3 June\n\nWe met again."))
    assert dates[1].bullets == ["5 May", "3 June"]


def test_captions_name_tables_and_are_no_bullets() -> None:
    """Above a table or below it, each names one; a picture's names nothing, and is in the notes."""
    table = "| A | GW |\n|--|--|\n| x | 1 |\n| y | 2 |\n\n"
    grid = f"It grew by 3 %.\n\n{table}Table 1: Stations\n\n{table}Tabelle 2. Lines\n\nFigure 1: A map\n\n"
    text = f"# Grid\n\n{grid}# Cost\n\nTable 3: Prices\n\n{table}{table}"
    deck = plan_deck("Wind", 12, "en", _sections(text))
    assert [slide.title for slide in deck[2:-1]] == ["Grid", "Stations", "Lines", "Cost", "Cost: GW"]
    assert deck[1].bullets == ["Grid", "Cost"]
    assert deck[2].bullets == ["It grew by 3 %."]
    assert "Figure 1: A map" in deck[2].notes


@pytest.mark.parametrize("slides", [1, 3, 4, 10, 50])
def test_without_documents_it_is_a_skeleton_that_says_so(slides: int) -> None:
    """As many slides as wanted, with different titles, and each of them says what it is."""
    deck = plan_deck("Whales", slides, "en", [])
    assert len({slide.title for slide in deck}) == len(deck) == slides
    content = [slide for slide in deck if slide.layout == "bullets"]
    assert all("skeleton" in slide.notes for slide in content)
    assert all(bullet.startswith("To be written") for bullet in _bullets(deck))
    if slides > 3:
        assert "skeleton" in deck[0].bullets[0]


def test_every_language_of_the_page_has_its_frame() -> None:
    """Who chooses one finds no English in the deck, and something to write on each slide."""
    page = Path(package.__path__[0], "page", "library.js").read_text()
    codes = re.findall(r"\b([a-z]{2}): \"", page.partition("LANGUAGES = {")[2].partition("}")[0])
    assert {"ru", "pl", "cs", "tr", "el"} < set(codes)
    frames = [frame_words(code) for code in codes]
    assert len({frame.sources + frame.is_skeleton for frame in frames}) == len(codes)
    assert all(len(frame.parts) == 6 and all(part.hints for part in frame.parts) for frame in frames)


@pytest.mark.parametrize(("language", "agenda"), [("ru", "Содержание"), ("pl-PL", "Plan"), ("xx", "Agenda")])
def test_the_frame_is_in_the_language_of_the_deck(language: str, agenda: str) -> None:
    """What is not quoted is translated, if we can."""
    assert plan_deck("X", 5, language, _sections(REPORT))[1].title == agenda


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("Costs fell by 12 % since 2019.", "Costs fell by 12 % since 2019."),
        (
            (
                "After a long debate in parliament that nobody had expected to last for so many weeks, "
                "the law was passed on 5 May 2021."
            ),
            "…the law was passed on 5 May 2021.",
        ),
        (
            "a b c d e f g h i j k l m n o p 17",
            "…e f g h i j k l m n o p 17",
        ),
        (
            "A strike of a kind that stopped work for nine days in 2023 would cost about € 400,000 per day.",
            "…that stopped work for nine days in 2023 would cost about € 400,000 per day.",
        ),
        (
            "Net debt, which had grown, was € 12.4 million (2024: € 15.0 million) after the sale of a ship.",
            "…was € 12.4 million (2024: € 15.0 million) after the sale of a ship.",
        ),
    ],
)
def test_long_sentences_are_cut_around_their_figures(sentence: str, shown: str) -> None:
    """A clause is quoted alone if it has the figures; otherwise the words up to them."""
    assert max(bullet_parts(sentence), key=figures_of) == shown
    assert len(shown.split()) <= MAX_WORDS


def test_conditions_are_not_shown_without_what_they_are_about() -> None:
    """A clause with "if" is divided from a long sentence, and one at its beginning brings the next along."""
    hope = (
        "We expect the margin to recover to 6.5 % by the end of the year if the clinic opens on 1 December."
    )
    assert bullet_parts(hope)[0] == "We expect the margin to recover to 6.5 % by the end of the year"
    risk = (
        "If both positions in the emergency department stay vacant, the state may reduce our licence in May."
    )
    bullets = _bullets(
        plan_deck("Risks", 5, "en", _sections(f"# Report\n\n## Risks\n\n{risk}\n\n## Other\n\nNone."))
    )
    assert bullets[:2] == [
        "If both positions in the emergency department stay vacant…",
        "…the state may reduce our licence in May.",
    ]


def test_tables_are_named_by_what_their_title_does_not_say() -> None:
    """The column of the rows is left out if the heading names it; a chart shows it."""
    table = "| Department | 2025 | Trend |\n|--|--|--|\n| Surgery | 15 | up |\n| Radiology | 5 | down |\n\n"
    text = f"# Report\n\n## Revenue by department\n\nIt grew.\n\n{table}## Staff\n\nIt grew too.\n\n{table}"
    titles = [slide.title for slide in plan_deck("Report", 12, "en", _sections(text)) if slide.table]
    assert titles == ["Revenue by department: 2025, Trend", "Staff: Department, 2025, Trend"]


@pytest.mark.parametrize(
    "sentence",
    [
        "The council of the northern provinces met in the harbour between May 3 and June 14 of that year.",
        "The council of the northern provinces met in the old harbour on 3 May and 14 June of that year.",
        "The council of the northern provinces and its guests met in the harbour on May 3, 2021, to vote.",
    ],
)
def test_dates_and_ranges_are_not_divided(sentence: str) -> None:
    """No bullet ends in the middle of a range or a date, and each figure is in one."""
    parts = bullet_parts(sentence)
    said = " ".join(parts)
    ranges = ("between May 3 and June 14", "3 May and 14 June", "May 3, 2021")
    assert any(each in said for each in ranges), parts
    assert all(len(part.split()) <= MAX_WORDS for part in parts)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1,234", 1234.0),
        ("1.234,5", 1234.5),
        ("8,5", 8.5),
        ("€ 12.50", 12.5),
        ("45 %", 45.0),
        ("1 234 567", 1234567.0),
        ("−3", -3.0),
        ("n/a", None),
        ("2019-2021", None),
        ("9" * 400, None),
        ("0.0", 0.0),
        (f"0.{'0' * 320}1", None),
        ("", None),
    ],
)
def test_numbers_are_read_as_people_write_them(cell: str, value: float | None) -> None:
    """Currencies, percentages, both decimal marks and thousands; anything else is not a number."""
    read = numbers([cell])
    assert (None if read is None else read[0]) == (None if value is None else [value])


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1.234,5", "2.000"], [1234.5, 2000.0]),
        (["1,234.5", "2,000"], [1234.5, 2000.0]),
        (["1.500", "8.5"], [1.5, 8.5]),
        (["1.000.000", "2.500"], [1_000_000.0, 2500.0]),
        (["1.500", "2.000"], None),
        (["1,500", "2.000"], None),
        (["8,5", "8.5"], None),
        (["12.05.2024", "13.05.2024"], None),
    ],
)
def test_a_table_has_one_decimal_mark(cells: list[str], values: list[float] | None) -> None:
    """A cell that leaves no choice decides for all; what may be a thousand times more is not charted."""
    table = Table(header=["Name", "Tonnes"], rows=[[f"N{at}", cell] for at, cell in enumerate(cells)])
    data = chart_data(table)
    assert (None if data is None else data.series[0].values) == values


def test_charts_write_numbers_with_the_mark_of_their_table() -> None:
    """A decimal comma stays one, with spaces between thousands."""
    data = chart_data(Table(header=["Name", "t"], rows=[["A", "1.234,5"], ["B", "-2"]]))
    assert data is not None
    assert data.shown(1234.5) == "1\u00a0234,5"


def test_a_table_is_a_chart_only_if_it_is_one_of_numbers() -> None:
    """Years are connected by a line, names are columns, and a cell of text makes it a table."""
    years = Table(header=["Year", "Share"], rows=[["2023", "10 %"], ["2024", "12 %"]])
    data = chart_data(years)
    assert data is not None
    assert (data.is_time, data.unit) == (True, "%")
    names = chart_data(Table(header=["Name", "GW"], rows=[["A", "1"], ["B", "2"]]))
    assert names is not None
    assert not names.is_time
    for column in (["1", "GE"], ["10 %", "12 %"], ["2029", "2030"]):
        rows = [["A", "1", column[0]], ["B", "2", column[1]]]
        assert chart_data(Table(header=["Name", "GW", "Another"], rows=rows)) is None, "no common axis"
