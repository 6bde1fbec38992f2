"""The looks of presentations: three built-in themes, and the brand kits of organizations on top of them.

A brand kit replaces colours and fonts and adds a logo. Text on a brand's colour is black or white, whichever
contrasts more, and a brand's accent is used for text only where it can be read.
"""

from __future__ import annotations

from io import BytesIO
from typing import Literal, TypeAlias

import msgspec

ThemeName: TypeAlias = Literal["paper", "night", "meadow"]

_READABLE = 4.5  # contrast by WCAG
_MAX_LOGO_SIDE = 3_000  # pixels
_MAX_SCANS = 100  # of a JPEG: each of them, which may have a few bytes, goes over all of its pixels
_SCAN = b"\xff\xda"
LOGO_BYTES = 500_000


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Colours as six hexadecimal digits, and fonts."""

    name: str
    background: str
    ink: str
    """Text."""
    muted: str
    """Text of less weight: sources, numbers."""
    primary: str
    """The background of title and closing slides, and the first series of a chart."""
    on_primary: str
    accent: str
    accent_text: str
    """The accent, or another colour where it could not be read."""
    tint: str
    """Rows of tables."""
    series: list[str]
    """Further colours of charts."""
    heading_font: str = "Calibri"
    body_font: str = "Calibri"
    logo: bytes | None = None

    @property
    def chart_colours(self) -> list[str]:
        """The colours of a chart's series."""
        first = self.primary if contrast(self.primary, self.background) >= 2 else self.accent
        others = [colour for colour in (self.accent, *self.series) if colour != first]
        return [first, *others]


THEMES: dict[str, Theme] = {
    "paper": Theme(
        name="paper", background="FFFFFF", ink="1B2430", muted="566172", primary="1F3A5F",
        on_primary="FFFFFF", accent="E4572E", accent_text="C2410C", tint="F1F4F8",
        series=["3C8DAD", "F2B134"],
    ),
    "night": Theme(
        name="night", background="12161F", ink="F2F4F8", muted="A4AEBD", primary="1C2433",
        on_primary="FFFFFF", accent="4FD1C5", accent_text="4FD1C5", tint="1D2430",
        series=["F6AD55", "7F9CF5"],
    ),
    "meadow": Theme(
        name="meadow", background="FBFAF6", ink="22301F", muted="5A6654", primary="2F5D50",
        on_primary="FFFFFF", accent="D69A2D", accent_text="8A5A0B", tint="EFEDE3",
        series=["7BA591", "B5533C"],
    ),
}  # fmt: skip


class BrandKit(msgspec.Struct, frozen=True, kw_only=True):
    """What an organization's presentations look like."""

    primary: str
    accent: str
    heading_font: str = "Calibri"
    body_font: str = "Calibri"
    logo: bytes | None = None


def branded(theme: Theme, kit: BrandKit | None) -> Theme:
    """A theme with an organization's colours, fonts and logo."""
    if kit is None:
        return theme
    primary, accent = kit.primary.upper(), kit.accent.upper()
    return msgspec.structs.replace(
        theme,
        primary=primary,
        on_primary=max(("FFFFFF", "101418"), key=lambda colour: contrast(colour, primary)),
        accent=accent,
        accent_text=accent if contrast(accent, theme.background) >= _READABLE else theme.ink,
        heading_font=kit.heading_font,
        body_font=kit.body_font,
        logo=kit.logo,
    )


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21, by WCAG."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def check_logo(content: bytes) -> None:
    """Raise ValueError, with a reason, unless this is a PNG or JPEG that can be shown."""
    from PIL import Image

    if len(content) > LOGO_BYTES:
        raise ValueError(f"The logo is larger than {LOGO_BYTES:,} bytes.")
    try:
        with Image.open(BytesIO(content), formats=("PNG", "JPEG")) as image:
            if max(image.size) > _MAX_LOGO_SIDE:  # checked before it is unpacked
                raise ValueError(f"The logo is wider or higher than {_MAX_LOGO_SIDE:,} pixels.")
            if image.format == "JPEG" and content.count(_SCAN) > _MAX_SCANS:
                raise ValueError(f"The logo has more than {_MAX_SCANS} scans; save it as a PNG.")
            image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as problem:
        raise ValueError("The logo is not a PNG or JPEG that can be read.") from problem
