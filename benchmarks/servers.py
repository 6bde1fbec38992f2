"""The embedded servers of one row: started at their first use, stopped with the row."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from ephemera import embedded


class Servers:
    """What a row's contenders connect to; all of them to the same one."""

    def __init__(self) -> None:
        self._running = ExitStack()

    @cached_property
    def valkey(self) -> embedded.Valkey:
        """One Valkey on loopback TCP."""
        return self._running.enter_context(embedded.valkey())

    @cached_property
    def cluster(self) -> embedded.Cluster:
        """Three masters with a replica each."""
        return self._running.enter_context(embedded.cluster(masters=3, replicas=1))

    @cached_property
    def postgres(self) -> embedded.Postgres:
        """One PostgreSQL, which does not wait for the disk."""
        return self._running.enter_context(embedded.postgres())

    @cached_property
    def durable_postgres(self) -> embedded.Postgres:
        """One PostgreSQL as it comes: a commit is on the disk before it is acknowledged."""
        folder = Path(self._running.enter_context(TemporaryDirectory(prefix="ephemera-bench-")))
        folder.chmod(0o755)  # started by root it runs as another user, who must be able to enter
        return self._running.enter_context(embedded.postgres(data=folder / "data"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
