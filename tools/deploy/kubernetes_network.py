"""Network policies: all traffic is denied except what is listed here."""

from __future__ import annotations

from typing import Any

from tools.deploy.kubernetes_parts import labels, meta
from tools.deploy.layout import PORT, SERVICES

_OURS = [each.name for each in SERVICES]
_WORKERS = [f"{each.name}-worker" for each in SERVICES if each.worker]
_CONSOLES = [f"{each.name}-console" for each in SERVICES]


def policies() -> list[dict[str, Any]]:
    """The policies of the namespace."""
    clients = {
        group: [name for each in SERVICES if group in (each.cache, "queue") for name in _programs(each.name)]
        for group in ("cache", "pages", "queue")
    }
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": meta("deny-all"),
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        },
        _policy("cache", [*clients["cache"], "cache", "cache-create"], 6379, 16379),
        _policy("pages", [*clients["pages"], "mark"], 6379),
        _policy("queue", [*clients["queue"], "queue", "sentinel", "mark"], 6379),
        _policy("sentinel", [*clients["queue"], "sentinel", "mark"], 26379),
        _policy("postgres", [*_OURS, *_WORKERS, *_CONSOLES], 5432),
        _policy("qdrant", ["slides", "slides-worker", "scripture", "scripture-worker"], 6333),
        _policy("mongodb", ["feed", "feed-worker"], 27017),
        *(_from_outside(each.name) for each in SERVICES if each.public),
        _policy("feed", ["slides", "scripture", "league", "identity", "feed-console"], PORT, 50051),
    ]


def _programs(service: str) -> list[str]:
    return [
        name
        for name in (service, f"{service}-worker", f"{service}-console")
        if name in _OURS + _WORKERS + _CONSOLES
    ]


def _policy(name: str, clients: list[str], *ports: int) -> dict[str, Any]:
    rule = {
        "from": [{"podSelector": {"matchLabels": labels(each)}} for each in clients],
        "ports": _ports(*ports),
    }
    return _ingress(name, rule)


def _from_outside(name: str) -> dict[str, Any]:
    """A public service: from the ingress controller, Prometheus, and scripture for identity's keys."""
    return _ingress(name, {"ports": _ports(PORT)})


def _ingress(name: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": meta(name),
        "spec": {
            "podSelector": {"matchLabels": labels(name)},
            "policyTypes": ["Ingress"],
            "ingress": [rule],
        },
    }


def _ports(*ports: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
