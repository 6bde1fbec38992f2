"""What `ephemera demo` runs: servers, five services, their workers, the console, and traffic or a tour.

Read the modules in the order in which things happen: `external_servers` (the servers that the user named),
`servers` (those, or embedded ones), `process_plan` (which processes there are, and their environment),
`processes` (start, watch, stop), `traffic` (synthetic clients), `screen` (the terminal output), `tour` (the
guided tour), and `run`, which puts everything together.
"""

from typing import TYPE_CHECKING

from ephemera_services._lazy import lazy_exports

if TYPE_CHECKING:
    from ephemera_services.demo.external_servers import ServerUrls
    from ephemera_services.demo.run import cancel_on_signals, run_demo, run_tour
    from ephemera_services.demo.screen import Screen

__all__ = ["Screen", "ServerUrls", "cancel_on_signals", "run_demo", "run_tour"]

__getattr__ = lazy_exports(
    __name__,
    {
        "Screen": "screen",
        "ServerUrls": "external_servers",
        "cancel_on_signals": "run",
        "run_demo": "run",
        "run_tour": "run",
    },
)
