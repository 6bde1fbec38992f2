"""Network policies: all traffic is denied, in both directions, except the connections listed here.

Each connection is one entry of `connections`, from which the client's egress rule and the server's ingress
rule follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tools.deploy.kubernetes_parts import labels, meta
from tools.deploy.layout import PORT, SERVICES

_GRPC = 50051
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "127.0.0.0/8")
_OUTSIDE_PORTS = (443, 465, 587)
"""HTTPS and mail."""


def connections() -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Every connection inside: client, server, ports."""
    yield "cache", "cache", (6379, 16379)
    yield "cache-create", "cache", (6379,)
    yield "queue", "queue", (6379,)
    yield "sentinel", "queue", (6379,)
    yield "sentinel", "sentinel", (26379,)
    for server, port in (("texts", 6379), ("queue", 6379), ("sentinel", 26379)):
        yield "mark", server, (port,)
    for service in SERVICES:
        for program in service.programs:
            yield program, service.cache, (6379,)
            yield program, "queue", (6379,)
            yield program, "sentinel", (26379,)
            yield program, "postgres", (5432,)
        yield f"{service.name}-console", service.name, (PORT,)
        for called in service.calls:
            yield service.name, called, (PORT,)
        if not service.public:
            for other in SERVICES:
                if other.public:
                    yield other.name, service.name, (PORT, _GRPC)
        stored = {"slides": ("qdrant", 6333), "scripture": ("qdrant", 6333), "feed": ("mongodb", 27017)}
        if service.name in stored:
            for program in (service.name, *service.worker_names()):
                yield program, stored[service.name][0], (stored[service.name][1],)


def policies() -> list[dict[str, Any]]:
    """The policies of the namespace: nothing for all, names for all, then each part's own."""
    clients: dict[str, list[str]] = {}
    servers: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    ports: dict[tuple[str, str], tuple[int, ...]] = {}
    for client, server, used in connections():
        clients.setdefault(server, []).append(client)
        servers.setdefault(client, []).append((server, used))
        ports[client, server] = used
    made = [_everything("deny-all", {"policyTypes": ["Ingress", "Egress"]}), _names()]
    for server in clients:
        rules = [_rule("from", client, ports[client, server]) for client in clients[server]]
        if server in _public():
            rules = [{"ports": _ports(PORT)}]  # the ingress controller, Prometheus, consoles, scripture
        made.append(_policy(f"to-{server}", server, {"policyTypes": ["Ingress"], "ingress": rules}))
    for client, reached in servers.items():
        rules = [_rule("to", server, used) for server, used in reached]
        made.append(_policy(f"from-{client}", client, {"policyTypes": ["Egress"], "egress": rules}))
    return [*made, *(_outside(name) for name in _reaching_out())]


def _public() -> set[str]:
    return {each.name for each in SERVICES if each.public}


def _reaching_out() -> list[str]:
    return [name for each in SERVICES if each.reaches_out for name in each.programs if "console" not in name]


def _names() -> dict[str, Any]:
    """All may ask the cluster's DNS."""
    resolver = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    rule = {"to": [resolver], "ports": ports}
    return _everything("names", {"policyTypes": ["Egress"], "egress": [rule]})


def _outside(name: str) -> dict[str, Any]:
    """To the internet, not to private networks: models, mail and feeds."""
    block = {"ipBlock": {"cidr": "0.0.0.0/0", "except": list(_PRIVATE)}}
    rule = {"to": [block], "ports": _ports(*_OUTSIDE_PORTS)}
    return _policy(f"outside-{name}", name, {"policyTypes": ["Egress"], "egress": [rule]})


def _everything(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _document(name, {"podSelector": {}, **spec})


def _policy(name: str, part: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _document(name, {"podSelector": {"matchLabels": labels(part)}, **spec})


def _document(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta(name),
        "spec": spec,
    }


def _rule(direction: str, part: str, ports: tuple[int, ...]) -> dict[str, Any]:
    return {direction: [{"podSelector": {"matchLabels": labels(part)}}], "ports": _ports(*ports)}


def _ports(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
