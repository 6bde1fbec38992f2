"""The 16:9 master of exported PPTX files: a theme's colours and fonts, and a layout for each kind of slide.

It is made from python-pptx's default file, whose layouts are replaced. Layouts have real placeholders and
theme colours, so a deck can be edited, restyled and extended in PowerPoint like one that was made there.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ephemera_services.slides.deck import Layout
from ephemera_services.slides.slide_layout import (
    HEIGHT,
    INDENT,
    LOGO,
    NAMES,
    NUMBER,
    SHAPES,
    SLOTS,
    SMALL_LOGO,
    SOURCES,
    WIDTH,
    Box,
    Shape,
    Slot,
)
from ephemera_services.slides.themes import Theme

_EMU = 12_700  # per point
_NAMESPACES = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
)
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_TYPES: dict[Layout, str] = {
    "title": "title",
    "section": "secHead",
    "bullets": "obj",
    "two_columns": "twoTxTwoObj",
    "table": "tbl",
    "chart": "chart",
}


def new_deck(theme: Theme) -> Any:
    """A presentation without slides; its layouts are named as in `NAMES`."""
    from pptx import Presentation

    deck = Presentation()
    deck.slide_width, deck.slide_height = WIDTH * _EMU, HEIGHT * _EMU
    layouts = list(deck.slide_layouts)
    for layout in layouts[len(SLOTS) :]:
        deck.slide_layouts.remove(layout)
    _set_theme(deck.slide_master, theme)
    _fill_master(deck.slide_master, theme)
    for kind, layout in zip(SLOTS, layouts, strict=False):
        _fill_layout(layout, kind, theme)
    return deck


def scheme_colour(role: str, theme: Theme) -> str:
    """The element of a colour: one of the file's theme, so that changing the theme changes it."""
    names = {"ink": "tx1", "background": "bg1", "primary": "tx2", "tint": "bg2", "muted": "accent6"}
    names |= {"accent_text": "accent5", "accent": f"accent{theme.chart_colours.index(theme.accent) + 1}"}
    if role in names:
        return f'<a:schemeClr val="{names[role]}"/>'
    return f'<a:srgbClr val="{getattr(theme, role)}"/>'


def element(xml: str) -> Any:
    """An element of PresentationML or DrawingML."""
    from pptx.oxml import parse_xml

    name, space, rest = xml.partition(" ") if " " in xml.partition(">")[0] else xml.partition(">")
    return parse_xml(f"{name} {_NAMESPACES}{space}{rest}")


def placeholder(slot: Slot, number: int, theme: Theme, text: str, *, styled: bool = True) -> Any:
    """The element of a placeholder; one that is not styled looks as its layout's."""
    size, font = round(slot.sizes[0] * 100), "+mj-lt" if slot.bold else "+mn-lt"
    style = ""
    if styled:
        style = (
            f"<a:lvl1pPr{_indent(slot)}><a:spcBef><a:spcPts val={quoteattr(str(round(slot.gap * size)))}/>"
            f'</a:spcBef>{_marker(slot, theme)}<a:defRPr sz="{size}" b="{int(slot.bold)}"><a:solidFill>'
            f"{scheme_colour(slot.colour, theme)}</a:solidFill>"
            f'<a:latin typeface="{font}"/></a:defRPr></a:lvl1pPr>'
        )
    content = text if text.startswith("<a:") else f'<a:r><a:rPr lang="en"/><a:t>{escape(text)}</a:t></a:r>'
    index = "" if slot.number == 0 else f' idx="{slot.number}"'
    position = f"<a:xfrm>{_xfrm(slot.box)}</a:xfrm>" if styled else ""
    body = f'<a:bodyPr lIns="0" tIns="0" rIns="0" bIns="0" anchor="{"b" if slot.bottom else "t"}">'
    return element(
        f"<p:sp><p:nvSpPr><p:cNvPr id={quoteattr(str(number))} name={quoteattr(slot.name)}/>"
        '<p:cNvSpPr><a:spLocks noGrp="1"/></p:cNvSpPr>'
        f'<p:nvPr><p:ph type="{slot.kind}"{index}/></p:nvPr></p:nvSpPr>'
        f"<p:spPr>{position}</p:spPr><p:txBody>{body}<a:noAutofit/></a:bodyPr>"
        f"<a:lstStyle>{style}</a:lstStyle><a:p>{content}</a:p></p:txBody></p:sp>"
    )


SLIDE_NUMBER = (
    '<a:fld id="{B6F15528-21DE-4FAA-801E-634DDDAF4B2B}" type="slidenum">'
    '<a:rPr lang="en"/><a:t>0</a:t></a:fld>'
)
"""The text of a slide's number: a field."""


def _indent(slot: Slot) -> str:
    if slot.kind == "sldNum":
        return ' algn="r" marL="0" indent="0"'
    if slot.marker == "none":
        return ' algn="l" marL="0" indent="0"'
    space = (INDENT + (8 if slot.marker == "number" else 0)) * _EMU
    return f' algn="l" marL="{space}" indent="-{space}"'


def _marker(slot: Slot, theme: Theme) -> str:
    if slot.marker == "none":
        return "<a:buNone/>"
    colour = scheme_colour("accent" if slot.colour == "on_primary" else "accent_text", theme)
    mark = '<a:buChar char="•"/>' if slot.marker == "bullet" else '<a:buAutoNum type="arabicPeriod"/>'
    font = '<a:buFont typeface="Arial"/>' if slot.marker == "bullet" else '<a:buFont typeface="+mj-lt"/>'
    return f"<a:buClr>{colour}</a:buClr>{font}{mark}"


def _fill_layout(layout: Any, kind: Layout, theme: Theme) -> None:
    tree = layout.shapes._spTree
    _clear(tree)
    layout._element.cSld.set("name", NAMES[kind])
    layout._element.set("type", _TYPES.get(kind, "cust"))
    for shape in SHAPES[kind]:
        tree.append(_rectangle(shape, len(tree), theme))
    if theme.logo is not None:
        tree.append(_logo(layout, LOGO.get(kind, SMALL_LOGO), len(tree), theme.logo))
    for slot in SLOTS[kind]:
        tree.append(placeholder(slot, len(tree), theme, slot.name))
    if kind not in LOGO:
        tree.append(placeholder(SOURCES, len(tree), theme, "Source"))
        tree.append(placeholder(NUMBER, len(tree), theme, SLIDE_NUMBER))


def _fill_master(master: Any, theme: Theme) -> None:
    tree = master.shapes._spTree
    _clear(tree)
    title, body = SLOTS["bullets"]
    for slot, text in (
        (title, "Title"),
        (body, "Text"),
        (SOURCES._replace(number=3), "Source"),
        (NUMBER._replace(number=4), SLIDE_NUMBER),
    ):
        tree.append(placeholder(slot, len(tree), theme, text))
    background = master._element.cSld.find(f"{tree.tag.partition('}')[0]}}}bg")
    if background is not None:
        master._element.cSld.remove(background)
    fill = f"<a:solidFill>{scheme_colour('background', theme)}</a:solidFill>"
    master._element.cSld.insert(0, element(f"<p:bg><p:bgPr>{fill}<a:effectLst/></p:bgPr></p:bg>"))


def _clear(tree: Any) -> None:
    for child in list(tree)[2:]:  # after the properties of the group
        tree.remove(child)


def _rectangle(shape: Shape, number: int, theme: Theme) -> Any:
    return element(
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="Shape {number}"/><p:cNvSpPr/><p:nvPr userDrawn="1"/>'
        f"</p:nvSpPr><p:spPr><a:xfrm>{_xfrm(shape.box)}</a:xfrm>"
        f'<a:prstGeom prst="rect"><a:avLst/></a:prstGeom><a:solidFill>{scheme_colour(shape.colour, theme)}'
        "</a:solidFill><a:ln><a:noFill/></a:ln></p:spPr></p:sp>"
    )


def _logo(layout: Any, box: Box, number: int, content: bytes) -> Any:
    part, relation = layout.part.get_or_add_image_part(BytesIO(content))
    wide, high = part.image.size
    scale = min(box.width / wide, box.height / high)
    width, height = wide * scale, high * scale
    placed = Box(box.x + box.width - width, box.y, width, height)
    return element(
        f'<p:pic><p:nvPicPr><p:cNvPr id="{number}" name="Logo" descr="Logo"/><p:cNvPicPr><a:picLocks '
        'noChangeAspect="1"/></p:cNvPicPr><p:nvPr userDrawn="1"/></p:nvPicPr><p:blipFill>'
        f'<a:blip r:embed="{relation}"/><a:stretch><a:fillRect/></a:stretch></p:blipFill><p:spPr><a:xfrm>'
        f'{_xfrm(placed)}</a:xfrm><a:prstGeom prst="rect"><a:avLst/></a:prstGeom></p:spPr></p:pic>'
    )


def _xfrm(box: Box) -> str:
    x, y, width, height = (round(side * _EMU) for side in box)
    return f'<a:off x="{x}" y="{y}"/><a:ext cx="{width}" cy="{height}"/>'


def _set_theme(master: Any, theme: Theme) -> None:
    """Replace the colours and fonts of the file's theme."""
    from lxml import etree
    from pptx.opc.constants import RELATIONSHIP_TYPE

    part = master.part.part_related_by(RELATIONSHIP_TYPE.THEME)
    tree = etree.fromstring(part.blob)
    tree.set("name", theme.name)
    colours = dict(
        zip(("accent1", "accent2", "accent3", "accent4"), [*theme.chart_colours, theme.muted], strict=False)
    )
    colours |= {
        "dk1": theme.ink, "lt1": theme.background, "dk2": theme.primary, "lt2": theme.tint,
        "accent5": theme.accent_text, "accent6": theme.muted,
        "hlink": theme.accent_text, "folHlink": theme.muted,
    }  # fmt: skip
    for name, colour in colours.items():
        found = tree.find(f".//{_A}clrScheme/{_A}{name}")
        for child in list(found):
            found.remove(child)
        etree.SubElement(found, f"{_A}srgbClr", val=colour)
    for group, family in (("majorFont", theme.heading_font), ("minorFont", theme.body_font)):
        tree.find(f".//{_A}{group}/{_A}latin").set("typeface", family)
    part._blob = etree.tostring(tree, xml_declaration=True, encoding="UTF-8", standalone=True)
