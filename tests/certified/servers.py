"""Servers for a run of a suite; each returns the values of the placeholders that declarations may use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from urllib.parse import urlsplit

from ephemera.embedded import cluster, valkey


def no_server(stack: ExitStack) -> Mapping[str, str]:
    """Nothing."""
    return {}


def one_valkey(stack: ExitStack) -> Mapping[str, str]:
    """One server without a password, as others' tests expect: `{url}` and `{port}`."""
    server = stack.enter_context(valkey(password=""))
    return {"url": server.url, "port": str(server.port)}


def valkey_and_cluster(stack: ExitStack) -> Mapping[str, str]:
    """The same, and a cluster: `{cluster_url}`, `{cluster_port}` of one node, `{cluster_password}`."""
    nodes = stack.enter_context(cluster())
    password, port = urlsplit(nodes.nodes[0].url).password or "", str(nodes.nodes[0].port)
    return {
        **one_valkey(stack),
        "cluster_url": nodes.nodes[0].url,
        "cluster_port": port,
        "cluster_password": password,
    }
