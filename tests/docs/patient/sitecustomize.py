"""Python runs this first in programs of the documentation: they wait longer for servers, as tests do."""

import tests  # noqa: F401 - importing it is all that is needed
