"""The page of a shared presentation: all slides below each other, without scripts, notes and sources.

It is one document with its style, whose hash the content security policy names. Everything that users wrote
is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from ephemera_services.slides.chart_data import chart_data
from ephemera_services.slides.chart_svg import chart_svg
from ephemera_services.slides.deck import SlideContent, Table
from ephemera_services.slides.table_numbers import are_figures
from ephemera_services.slides.themes import Theme

_STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--tint);color:var(--ink);
font:clamp(1.1rem,2.3vw,1.6rem)/1.4 Calibri,Carlito,system-ui,sans-serif}
main{max-width:64rem;margin:0 auto;padding:1.5rem;display:grid;gap:1.5rem;grid-template-columns:minmax(0,1fr)}
section{background:var(--background);aspect-ratio:16/9;padding:5% 6%;
border-radius:.75rem;box-shadow:0 1px 3px rgb(0 0 0/.2);
display:flex;flex-direction:column;position:relative;scroll-margin:1.5rem}
h2{margin:0;font-size:clamp(1.3rem,3.2vw,2.1rem);line-height:1.2}
h2::after{content:"";display:block;width:3.5rem;height:.25rem;margin-top:.6rem;background:var(--accent)}
h3{margin:0;color:var(--accent-text);font-size:1.05em}
ul,ol{margin:1.2rem 0 0;padding-left:1.4rem;display:grid;gap:.6rem}
li::marker{color:var(--accent-text);font-weight:700}
.title,.closing{background:var(--primary);color:var(--on-primary);border-left:.9rem solid var(--accent)}
.title,.section{justify-content:center}
.title li::marker,.closing li::marker{color:var(--accent)}
.title h2{font-size:clamp(1.6rem,4.6vw,3rem)}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(14rem,1fr));gap:2rem;margin-top:1.2rem}
.wide{overflow-x:auto;flex-shrink:0;margin-top:1.2rem}
.logo{position:absolute;right:6%;top:8%;max-width:14%;max-height:20%}
.wide>svg{display:block;width:100%;min-width:30rem;max-height:23rem;font-size:14px;fill:var(--ink)}
svg line{stroke:var(--tint)}polyline[points]{fill:none;stroke-width:3}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.5rem;margin-top:.6rem;font-size:1rem;color:var(--muted)}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
table{border-collapse:collapse;width:100%}
th{background:var(--primary);color:var(--on-primary);text-align:left}
.figure{text-align:right;font-variant-numeric:tabular-nums}td.figure{white-space:nowrap}
th,td{padding:.45rem .8rem}
tr:nth-child(even) td{background:var(--tint)}
.number{position:absolute;right:1.2rem;bottom:.8rem;font-size:.8rem;opacity:.7}
@media(max-width:40rem){main{padding:.5rem;gap:.5rem}section{aspect-ratio:auto;padding:1.2rem 1.2rem 2.2rem}}
@media print{main{display:block;max-width:none;padding:0}section{break-after:page;box-shadow:none}}
"""


def share_page(
    title: str, slides: Sequence[SlideContent], theme: Theme, language: str = "en"
) -> tuple[str, str]:
    """The page, and its content security policy."""
    style = _colours(theme) + _STYLE
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    logo = _logo(theme)
    body = "\n".join(_slide(slide, number, logo) for number, slide in enumerate(slides, 1))
    empty = "" if slides else "<p>This presentation is not written yet.</p>"
    page = (
        f'<!doctype html>\n<html lang="{escape(language)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="robots" content="noindex"><title>{escape(title)}</title><style>{style}</style></head>\n'
        f'<body><main aria-label="{escape(title)}">\n{body}{empty}\n</main></body></html>\n'
    )
    return page, policy


def _colours(theme: Theme) -> str:
    names = ("background", "ink", "muted", "primary", "on_primary", "accent", "accent_text", "tint")
    values = (f"--{name.replace('_', '-')}:#{getattr(theme, name)}" for name in names)
    series = (
        f".s{number}{{fill:#{colour};stroke:#{colour};background:#{colour}}}"
        for number, colour in enumerate(theme.chart_colours)
    )
    return f":root{{{';'.join(values)}}}{''.join(series)}"


def _logo(theme: Theme) -> str:
    if theme.logo is None:
        return ""
    kind = "png" if theme.logo.startswith(b"\x89PNG") else "jpeg"
    content = base64.b64encode(theme.logo).decode()
    return f'<img class="logo" alt="" src="data:image/{kind};base64,{content}">'


def _slide(slide: SlideContent, number: int, logo: str) -> str:
    label = f'id="{number}" class="{slide.layout}" aria-label="Slide {number}"'
    shown = logo if slide.layout in ("title", "closing") else ""
    return (
        f"<section {label}><h2>{escape(slide.title)}</h2>{_body(slide)}{shown}"
        f'<span class="number" aria-hidden="true">{number}</span></section>'
    )


def _body(slide: SlideContent) -> str:
    if slide.layout in ("table", "chart") and slide.table is not None:
        data = chart_data(slide.table) if slide.layout == "chart" else None
        return _table(slide.table) if data is None else chart_svg(data)
    if slide.layout == "two_columns":
        columns = (f"<div><h3>{escape(c.heading)}</h3>{_list(c.bullets)}</div>" for c in slide.columns)
        return f'<div class="columns">{"".join(columns)}</div>'
    if slide.layout in ("title", "section"):
        return "".join(f"<p>{escape(bullet)}</p>" for bullet in slide.bullets[:1])
    return _list(slide.bullets, "ol" if slide.layout == "agenda" else "ul")


def _list(bullets: Sequence[str], kind: str = "ul") -> str:
    items = "".join(f"<li>{escape(bullet)}</li>" for bullet in bullets)
    return f"<{kind}>{items}</{kind}>" if items else ""


def _table(table: Table) -> str:
    columns = range(len(table.header))
    sides = [' class="figure"' if are_figures(table.rows, column) else "" for column in columns]
    header = "".join(
        f'<th scope="col"{side}>{escape(cell)}</th>' for cell, side in zip(table.header, sides, strict=True)
    )
    rows = "".join(
        f"<tr>{''.join(f'<td{side}>{escape(cell)}</td>' for cell, side in zip(row, sides, strict=True))}</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
