"""The web console: what a service keeps on its servers, seen and acted upon in a browser.

`ephemera console` runs it as a process of its own. `README.md` beside this file is for those who add a page;
`docs/console.md` for those who use it.
"""

import importlib.util

if importlib.util.find_spec("nicegui") is None:
    raise ModuleNotFoundError("the console is an extra of its own: pip install 'ephemera-data[console]'")
