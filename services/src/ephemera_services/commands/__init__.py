"""What the services add to the command `ephemera`: `serve`, `demo`, and their workers by name."""

from ephemera_services.commands._demo import DEMO
from ephemera_services.commands._serve import SERVE
from ephemera_services.commands._workers import run_feed, run_scripture, run_slides

__all__ = ["DEMO", "SERVE", "run_feed", "run_scripture", "run_slides"]
