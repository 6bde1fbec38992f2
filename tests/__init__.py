"""The tests, and the programs that they start: all of them wait longer for a server than a service would."""

from tests.timeouts import use_long_timeouts

use_long_timeouts()
