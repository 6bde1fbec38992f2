"""Building blocks of the manifests; they follow the restricted Pod Security Standard."""

from __future__ import annotations

from typing import Any

NAMESPACE = "ephemera"
RESTRICTED: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
HARDENED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def meta(name: str) -> dict[str, Any]:
    """The metadata of a document."""
    return {"name": name, "namespace": NAMESPACE, "labels": labels(name)}


def labels(name: str) -> dict[str, str]:
    """The labels of a workload's pods."""
    return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": NAMESPACE}


def tls_volume(part: str) -> dict[str, Any]:
    """The volume with the certificate of one part."""
    return {"name": "tls", "secret": {"secretName": f"tls-{part}", "defaultMode": 0o440}}


def workload(kind: str, name: str, pod: dict[str, Any], *, replicas: int) -> dict[str, Any]:
    """A Deployment or a StatefulSet."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta(name),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(name)},
            "template": {"metadata": {"labels": labels(name)}, "spec": pod},
        },
    }


def service_of(name: str, ports: list[dict[str, Any]], *, headless: bool = False) -> dict[str, Any]:
    """A Service; headless, each pod has a DNS name of its own, even before it is ready."""
    spec: dict[str, Any] = {"selector": labels(name), "ports": ports}
    if headless:
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(name), "spec": spec}


def budget(name: str) -> dict[str, Any]:
    """A disruption budget: one pod at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta(name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(name)}},
    }


def spread(name: str) -> dict[str, Any]:
    """Spread pods over nodes where possible."""
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": labels(name)},
            }
        ]
    }


def resources(cpu: str, memory: str) -> dict[str, Any]:
    """Requests and limits of a container; memory is never overcommitted."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "2", "memory": memory}}


def http_probes(port: str) -> dict[str, Any]:
    """Liveness and readiness probes."""
    host = [{"name": "Host", "value": "localhost"}]  # by default it would be the pod's address
    alive = {"httpGet": {"path": "/healthz", "port": port, "httpHeaders": host}}
    ready = {"httpGet": {"path": "/readyz", "port": port, "httpHeaders": host}}
    return {
        "startupProbe": {**alive, "periodSeconds": 2, "failureThreshold": 60},
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5},
    }


def env_of_secrets(named: dict[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """Environment variables from secrets, by the name and key of the secret."""
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, (secret, key) in named.items()
    ]
