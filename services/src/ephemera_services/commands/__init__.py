"""What the services add to the command `ephemera`: `serve`, `ingest` and `demo`.

Every `ephemera` command imports this package, so it imports nothing heavy.
"""

from ephemera_services.commands._demo import DEMO
from ephemera_services.commands._ingest import INGEST
from ephemera_services.commands._serve import SERVE

__all__ = ["DEMO", "INGEST", "SERVE"]
