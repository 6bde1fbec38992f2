"""PPTX files of presentations, by python-pptx: native text, tables and charts, with notes and alt texts."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from ephemera_services.slides.chart_data import ChartData, axis_of, chart_data, decimals
from ephemera_services.slides.deck import SlideContent, printable
from ephemera_services.slides.pptx_template import (
    SLIDE_NUMBER,
    element,
    new_deck,
    placeholder,
    scheme_colour,
)
from ephemera_services.slides.slide_layout import (
    CELL,
    LOGO,
    NAMES,
    NUMBER,
    SOURCES,
    PlacedTable,
    PlacedText,
    drawable,
    place,
)
from ephemera_services.slides.text_fit import LINE
from ephemera_services.slides.themes import Theme


def render_pptx(title: str, slides: Sequence[SlideContent], theme: Theme) -> bytes:
    """Render a PPTX."""
    deck = new_deck(theme)
    deck.core_properties.title = printable(title)[:255]
    deck.core_properties.author = ""
    layouts = {layout.name: layout for layout in deck.slide_layouts}
    for number, slide in enumerate(map(drawable, slides), 1):
        _fill(deck.slides.add_slide(layouts[NAMES[slide.layout]]), slide, number, theme)
    file = BytesIO()
    deck.save(file)
    return file.getvalue()


def _fill(page: Any, slide: SlideContent, number: int, theme: Theme) -> None:
    placed = place(slide, theme)
    data = chart_data(slide.table) if slide.layout == "chart" and slide.table is not None else None
    free = {each.placeholder_format.idx: each for each in page.placeholders}
    for text in placed.texts:
        if text.slot.number == SOURCES.number:
            _append_footer(page, text, theme)
        else:
            _write(free.pop(text.slot.number), text)
    if placed.table is not None:
        _describe(_insert_table(free.pop(1), placed.table, theme), slide)
    if data is not None:
        _describe(_insert_chart(free.pop(1), data, theme), slide)
    for unused in free.values():
        unused._element.getparent().remove(unused._element)
    if slide.layout not in LOGO:
        shown = SLIDE_NUMBER.replace("<a:t>0<", f"<a:t>{number}<")
        tree = page.shapes._spTree
        tree.append(placeholder(NUMBER, _next_id(tree), theme, shown, styled=False))
    if slide.notes:
        page.notes_slide.notes_text_frame.text = printable(slide.notes)


def _write(target: Any, text: PlacedText) -> None:
    """Write fitted paragraphs into a placeholder, each line exactly as high as was measured."""
    from pptx.util import Pt

    slot, size = text.slot, text.fitted.size
    if (target.width, target.height) != (Pt(slot.box.width), Pt(slot.box.height)):
        target.left, target.top = Pt(slot.box.x), Pt(slot.box.y)
        target.width, target.height = Pt(slot.box.width), Pt(slot.box.height)
    target.name = slot.name
    frame = target.text_frame
    for number, content in enumerate(text.fitted.paragraphs()):
        paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
        paragraph.line_spacing = Pt(round(size * LINE, 1))
        paragraph.space_before = Pt(round(size * slot.gap, 1) if number else 0)
        if slot.marker == "number" and text.first_number > 1:
            start = element(f'<a:buAutoNum type="arabicPeriod" startAt="{text.first_number}"/>')
            paragraph._p.get_or_add_pPr().append(start)
        run = paragraph.add_run()
        run.text = printable(content)
        run.font.size = Pt(size)


def _append_footer(page: Any, text: PlacedText, theme: Theme) -> None:
    tree = page.shapes._spTree
    shown = printable(" ".join(text.fitted.paragraphs()))
    tree.append(placeholder(text.slot, _next_id(tree), theme, shown, styled=False))


def _next_id(tree: Any) -> int:
    return max(map(int, tree.xpath(".//p:cNvPr/@id")), default=1) + 1


def _describe(frame: Any, slide: SlideContent) -> None:
    """Give a table or a chart an alternative text."""
    table = slide.table
    if table is None:
        return
    rows = "; ".join(", ".join(filter(None, row)) for row in table.rows[:4])
    kind = "Chart" if slide.layout == "chart" else "Table"
    described = f"{kind}: {slide.title}. {', '.join(filter(None, table.header))}. {rows}"
    frame._element.nvGraphicFramePr.cNvPr.set("descr", printable(described)[:500])


def _insert_table(target: Any, placed: PlacedTable, theme: Theme) -> Any:
    from pptx.util import Pt

    frame = target.insert_table(len(placed.lines), len(placed.widths))
    table = frame.table
    table.horz_banding = table.first_row = False  # cells have their colours
    for column, width in zip(table.columns, placed.widths, strict=True):
        column.width = Pt(width)
    for number, (row, height) in enumerate(zip(table.rows, placed.heights, strict=True)):
        row.height = Pt(height)
        for cell, lines, right in zip(row.cells, placed.lines[number], placed.are_figures, strict=True):
            _write_cell(cell, " ".join(lines), placed.size, number, theme, right=right)
    frame.left, frame.top, frame.width = (Pt(side) for side in placed.box[:3])
    frame.height = Pt(sum(placed.heights))
    return frame


def _write_cell(cell: Any, text: str, size: float, row: int, theme: Theme, *, right: bool) -> None:
    from pptx.enum.text import MSO_ANCHOR, PP_ALIGN
    from pptx.util import Pt

    cell.vertical_anchor = MSO_ANCHOR.MIDDLE
    cell.margin_left = cell.margin_right = Pt(CELL[0])
    cell.margin_top = cell.margin_bottom = Pt(CELL[1])
    paragraph = cell.text_frame.paragraphs[0]
    paragraph.line_spacing = Pt(round(size * LINE, 1))
    if right:
        paragraph.alignment = PP_ALIGN.RIGHT
    run = paragraph.add_run()
    run.text = printable(text)
    run.font.size, run.font.bold = Pt(size), row == 0
    colour = scheme_colour("on_primary" if row == 0 else "ink", theme)
    run._r.get_or_add_rPr().insert(0, element(f"<a:solidFill>{colour}</a:solidFill>"))
    fill = "primary" if row == 0 else "tint" if row % 2 == 0 else "background"
    properties = cell._tc.get_or_add_tcPr()
    for side in ("lnL", "lnR", "lnT", "lnB"):
        properties.append(element(f'<a:{side} w="0"><a:noFill/></a:{side}>'))
    properties.append(element(f"<a:solidFill>{scheme_colour(fill, theme)}</a:solidFill>"))


def _insert_chart(target: Any, data: ChartData, theme: Theme) -> Any:
    from pptx.chart.data import CategoryChartData
    from pptx.enum.chart import XL_CHART_TYPE

    number_format = _number_format(data.digits, data.unit)
    content = CategoryChartData(number_format=number_format)
    content.categories = [printable(label) for label in data.labels]
    for series in data.series:
        content.add_series(printable(series.name), series.values)
    kind = XL_CHART_TYPE.LINE_MARKERS if data.is_time else XL_CHART_TYPE.COLUMN_CLUSTERED
    frame = target.insert_chart(kind, content)
    _style_chart(frame.chart, data, theme, number_format)
    return frame


def _number_format(digits: int, unit: str) -> str:
    """A format without optional digits, after which Office would leave the decimal point."""
    return "#,##0" + ("." + "0" * digits if digits else "") + (f'"{unit}"' if unit else "")


def _style_chart(chart: Any, data: ChartData, theme: Theme, number_format: str) -> None:
    from pptx.dml.color import RGBColor
    from pptx.enum.chart import XL_LABEL_POSITION, XL_LEGEND_POSITION
    from pptx.util import Pt

    chart.has_title = False
    chart.font.size = Pt(14)
    chart.font.color.rgb = RGBColor.from_string(theme.ink)
    chart.has_legend = True  # also of a single series, whose name may be its unit
    chart.legend.position = XL_LEGEND_POSITION.BOTTOM
    chart.legend.include_in_layout = False
    value_axis, plot = chart.value_axis, chart.plots[0]
    value_axis.minimum_scale, value_axis.maximum_scale, value_axis.major_unit = axis_of(data)
    value_axis.major_gridlines.format.line.color.rgb = RGBColor.from_string(theme.tint)
    value_axis.format.line.fill.background()
    labels = value_axis.tick_labels
    labels.number_format = _number_format(decimals([value_axis.major_unit], 6), data.unit)
    labels.number_format_is_linked = False
    labels.font.color.rgb = RGBColor.from_string(theme.muted)
    plot.has_data_labels = len(data.labels) * len(data.series) <= 15
    if plot.has_data_labels:
        plot.data_labels.number_format, plot.data_labels.number_format_is_linked = number_format, False
        above = XL_LABEL_POSITION.ABOVE if data.is_time else XL_LABEL_POSITION.OUTSIDE_END
        plot.data_labels.position = above
        for number, at in sorted(data.below()) if data.is_time else ():
            labels = plot.series[number].data_labels  # which replace the plot's, even at other points
            labels.show_value, labels.position = True, above
            labels.number_format, labels.number_format_is_linked = number_format, False
            plot.series[number].points[at].data_label.position = XL_LABEL_POSITION.BELOW
    if not data.is_time:
        plot.gap_width = 70
    for series, colour in zip(plot.series, theme.chart_colours, strict=False):
        line = series.format.line if data.is_time else series.format.fill
        if data.is_time:
            line.color.rgb, line.width = RGBColor.from_string(colour), Pt(2.5)
            series.smooth = False
        else:
            line.solid()
            line.fore_color.rgb = RGBColor.from_string(colour)
