"""Check the address that a server listens on, before anything else is started or printed."""

import errno
import ipaddress
import socket

import typer


def check_free(host: str, port: int) -> None:
    """Exit with a one-line error if the port cannot be bound."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            tried.bind(address)
    except OSError as error:
        typer.echo(f"ephemera: {_explain(host, port, error)}", err=True)
        raise typer.Exit(1) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another process; give a free one with --port"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} needs more privileges; give one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}; see --host and --port"
