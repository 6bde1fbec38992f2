"""Redis 7 as packaged by Debian, where it is installed: the other supported server, with TLS as well."""

from __future__ import annotations

from pathlib import Path

from ephemera.embedded import free_ports, send_command
from ephemera.embedded._server import Server
from ephemera.embedded._valkey import generate_password
from ephemera.errors import EmbeddedError, ServerError
from tests.wire.certificates import Authority

BINARY = Path("/usr/bin/redis-server")


class DebianRedis(Server):
    """A running Redis on a plain port and, with an authority, on one that speaks TLS."""

    def __init__(self, authority: Authority | None = None, *, client_certificates: bool = False) -> None:
        super().__init__(None)
        self.port, self.tls_port = free_ports(2)
        self.password = generate_password()
        self._settings = ['save ""', "bind 127.0.0.1", f"port {self.port}", "enable-debug-command yes"]
        self._settings += [f"requirepass {self.password}"]
        if authority is not None:
            certificate, key = authority.certify("debian", "localhost")
            self._settings += [
                f"tls-port {self.tls_port}",
                f"tls-cert-file {certificate}",
                f"tls-key-file {key}",
                f"tls-ca-cert-file {authority.ca}",
                f"tls-auth-clients {'yes' if client_certificates else 'no'}",
            ]
        self._start()

    def __repr__(self) -> str:
        return f"<DebianRedis on port {self.port}>"

    @property
    def url(self) -> str:
        """The URL without TLS."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}"

    def ask(self, *words: str | int) -> object:
        """Return the reply to one command, sent over a connection of its own."""
        return send_command(("127.0.0.1", self.port), *words, password=self.password)

    def _prepare(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        settings = [*self._settings, f"dir {self.data}", ""]
        (self._folder / "redis.conf").write_text("\n".join(settings))

    def _command(self) -> list[str]:
        return [str(BINARY), str(self._folder / "redis.conf")]

    def _is_ready(self) -> bool:
        try:
            return f"process_id:{self.pid}\r\n" in str(self.ask("INFO", "server"))
        except (OSError, ServerError):
            return False

    def _explained(self, problem: str) -> EmbeddedError:
        return EmbeddedError(problem)
