"""What the log says of something that is lost and found again: each once, however many parts of it there are.

The connections of one server share one `OutageLog`, and so do the tasks that wait for the same thing. The
first part that is lost is logged, with the reason, and the last one that works again: an outage is two lines,
however often each part tries in between.
"""

from __future__ import annotations

import logging


class OutageLog:
    """The lost parts of one server, or of one task that needs it."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lost: set[object] = set()

    def lose(
        self,
        part: object,
        message: str,
        *args: object,
        level: int = logging.WARNING,
        exc_info: BaseException | None = None,
    ) -> None:
        """Note a part that was lost, or could not be opened; the first one is logged."""
        if not self._lost:
            self._log.log(level, message, *args, exc_info=exc_info)
        self._lost.add(part)

    def regain(self, part: object, message: str, *args: object) -> None:
        """Note a part that works; the last one that was lost is logged, as an INFO."""
        if part in self._lost:
            self._lost.remove(part)
            if not self._lost:
                self._log.info(message, *args)

    def forget(self, part: object) -> None:
        """Leave out a part that was closed on purpose."""
        self._lost.discard(part)
