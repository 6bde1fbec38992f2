"""What pages are drawn with: one visual language, texts always as text.

Nothing here, and nothing in a page, may hand to the browser as markup what came from a server.
"""

from ephemera.console._components._cards import badge, columns, facts, section, text_block, tile, tiles
from ephemera.console._components._confirm import confirm_button
from ephemera.console._components._drawers import drawer
from ephemera.console._components._plots import bars, plot
from ephemera.console._components._states import Empty, empty, problem
from ephemera.console._components._tables import Action, Column, table

__all__ = [
    "Action",
    "Column",
    "Empty",
    "badge",
    "bars",
    "columns",
    "confirm_button",
    "drawer",
    "empty",
    "facts",
    "plot",
    "problem",
    "section",
    "table",
    "text_block",
    "tile",
    "tiles",
]
