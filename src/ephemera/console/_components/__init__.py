"""The components of pages. All content is text: data from a server never reaches the browser as markup."""

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
