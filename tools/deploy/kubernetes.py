"""The manifests: `kubectl apply -f deploy/kubernetes`, after its secrets were made as README.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tools.deploy import kubernetes_network, servers
from tools.deploy.kubernetes_parts import (
    HARDENED,
    NAMESPACE,
    RESTRICTED,
    TLS_VOLUME,
    budget,
    env_of_secrets,
    http_probes,
    meta,
    resources,
    service_of,
    spread,
    workload,
)
from tools.deploy.layout import (
    CACHE_NODES,
    IMAGE,
    MONGODB,
    PORT,
    POSTGRES,
    QDRANT,
    QUEUE_NODES,
    SENTINELS,
    SERVICES,
    VALKEY,
    Service,
    cache_url,
    database_url,
    environment,
    host,
    queue_url,
)

HEADER = "# Made by `python -m tools.deploy`; do not edit.\n"
_FOLDER = Path(__file__).parents[2] / "deploy"
_CLI = "valkey-cli --tls --cacert /tls/ca.crt --cert /tls/tls.crt --key /tls/tls.key"
_WRITABLE = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}


def files() -> dict[str, str]:
    """Every manifest by its place."""
    return {f"kubernetes/{name}.yaml": _text(documents) for name, documents in manifests().items()}


def manifests() -> dict[str, list[dict[str, Any]]]:
    """Every document, by the file it is in."""
    return {
        "00-namespace": [_namespace(), *_settings()],
        "10-network": kubernetes_network.policies(),
        "20-cache": [*_valkeys("cache", CACHE_NODES, "1536Mi", "2Gi"), _cluster_creation()],
        "21-pages": _valkeys("pages", 1, "192Mi", "1Gi"),
        "22-queue": [
            *_valkeys("queue", QUEUE_NODES, "1Gi", "4Gi"),
            *_valkeys("sentinel", SENTINELS, "128Mi", "100Mi", port=26379),
        ],
        "23-postgres": _postgres(),
        "30-mark": [_marking()],
        "40-services": [part for each in SERVICES for part in _service(each)],
        "41-workers": [_worker(each) for each in SERVICES if each.worker],
        "50-console": [part for each in SERVICES for part in _console(each)],
        "optional/mongodb": _store("mongodb", MONGODB, 27017, "/data/db", 999),
        "optional/qdrant": _store("qdrant", QDRANT, 6333, "/qdrant/storage", 1000),
    }


def _text(documents: list[dict[str, Any]]) -> str:
    text: str = yaml.safe_dump_all(documents, sort_keys=False, width=110, explicit_start=True)
    return HEADER + text


def _namespace() -> dict[str, Any]:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _settings() -> list[dict[str, Any]]:
    """The files of the servers, as they are in this folder."""
    ours = {name.partition("/")[2]: text for name, text in servers.files().items()}
    ours["start.sh"] = (_FOLDER / "servers/start.sh").read_text(encoding="utf-8")
    theirs = {
        path.name: path.read_text(encoding="utf-8") for path in sorted((_FOLDER / "postgres").iterdir())
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(name), "data": data}
        for name, data in (("servers", ours), ("postgres", theirs))
    ]


def _valkeys(group: str, count: int, memory: str, storage: str, *, port: int = 6379) -> list[dict[str, Any]]:
    sentinel = group == "sentinel"
    who = "" if sentinel else " --no-auth-warning --user probe --pass x"
    ping = {"exec": {"command": ["/bin/sh", "-c", f"{_CLI}{who} -p {port} ping | grep -q PONG"]}}
    container = {
        "name": group,
        "image": VALKEY,
        "command": ["/bin/sh", "/servers/start.sh", group, *(["--tls-port", str(port)] if sentinel else [])],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "ANNOUNCE", "value": f"$(POD).{group}"},
            {"name": "FIRST", "value": f"{host('queue', 0)} 6379"},
            {"name": "SETTINGS", "value": "/servers"},
            {"name": "SECRETS", "value": "/secrets"},
            {"name": "DATA", "value": "/data"},
        ],
        "ports": [{"name": "redis", "containerPort": port}],
        "startupProbe": {**ping, "periodSeconds": 2, "failureThreshold": 60, "timeoutSeconds": 3},
        "readinessProbe": {**ping, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {**ping, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "servers", "mountPath": "/servers", "readOnly": True},
            {"name": "secrets", "mountPath": "/secrets", "readOnly": True},
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
            {"name": "data", "mountPath": "/data"},
        ],
        "resources": resources("100m", memory),
        "securityContext": HARDENED,
    }
    pod = {
        "securityContext": {**RESTRICTED, "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 30,
        **spread(group),
        "containers": [container],
        "volumes": [
            {"name": "servers", "configMap": {"name": "servers"}},
            {"name": "secrets", "secret": {"secretName": "redis-users", "defaultMode": 0o440}},
            TLS_VOLUME,
        ],
    }
    ports = [{"name": "redis", "port": port}] + ([{"name": "bus", "port": 16379}] if group == "cache" else [])
    made = workload("StatefulSet", group, pod, replicas=count)
    made["spec"] |= {
        "serviceName": group,
        "podManagementPolicy": "Parallel",
        "volumeClaimTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
            }
        ],
    }
    headless = service_of(group, ports, headless=True)
    return [headless, made, *([budget(group)] if count > 1 else [])]


def _cluster_creation() -> dict[str, Any]:
    nodes = " ".join(f"{host('cache', number)}:6379" for number in range(CACHE_NODES))
    create = (
        "REDISCLI_AUTH=$(cat /secrets/redis-admin); export REDISCLI_AUTH\n"
        f"cli='{_CLI} --user admin'\n"
        f"$cli -h {host('cache', 0)} cluster info | grep -q cluster_state:ok && exit 0\n"
        f"$cli --cluster create {nodes} --cluster-replicas 1 --cluster-yes\n"
    )
    container = {
        "name": "create",
        "image": VALKEY,
        "command": ["/bin/sh", "-c", create],
        "volumeMounts": [
            {"name": "secrets", "mountPath": "/secrets", "readOnly": True},
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
        ],
        "resources": resources("50m", "128Mi"),
        "securityContext": HARDENED,
    }
    return _job("cache-create", container, 999)


def _marking() -> dict[str, Any]:
    """Scripture wants databases that are marked as its own."""
    scripture = next(each for each in SERVICES if each.name == "scripture")
    urls = (cache_url(scripture, "admin", "$(REDIS)"), queue_url(scripture, "admin", "$(REDIS)"))
    container = {
        "name": "mark",
        "image": IMAGE,
        "command": ["/bin/sh", "-c"],
        "args": [
            'ephemera mark --name scripture --url "$CACHE" && ephemera mark --name scripture --url "$QUEUE"'
        ],
        "env": [
            *env_of_secrets({"REDIS": ("redis-users", "redis-admin")}),
            {"name": "CACHE", "value": urls[0]},
            {"name": "QUEUE", "value": urls[1]},
        ],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
        "resources": resources("50m", "256Mi"),
        "securityContext": HARDENED,
    }
    return _job("mark", container, 10001)


def _job(name: str, container: dict[str, Any], user: int) -> dict[str, Any]:
    pod = {
        "restartPolicy": "OnFailure",
        "automountServiceAccountToken": False,
        "securityContext": {**RESTRICTED, "runAsUser": user, "runAsGroup": user, "fsGroup": user},
        "containers": [container],
        "volumes": [
            {"name": "secrets", "secret": {"secretName": "redis-users", "defaultMode": 0o440}},
            TLS_VOLUME,
        ],
    }
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": NAMESPACE}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta(name),
        "spec": {"backoffLimit": 20, "template": {"metadata": {"labels": labels}, "spec": pod}},
    }


def _postgres() -> list[dict[str, Any]]:
    ready = {"exec": {"command": ["pg_isready", "-q", "-h", "127.0.0.1"]}}
    container = {
        "name": "postgres",
        "image": POSTGRES,
        "args": ["-c", "config_file=/postgres/postgresql.conf"],
        "env": [
            {"name": "POSTGRES_PASSWORD_FILE", "value": "/run/secrets/sql-admin"},
            {"name": "POSTGRES_INITDB_ARGS", "value": "--auth-host=scram-sha-256 --auth-local=scram-sha-256"},
            {"name": "DATABASES", "value": " ".join(each.name for each in SERVICES)},
        ],
        "ports": [{"name": "postgres", "containerPort": 5432}],
        "startupProbe": {**ready, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {**ready, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "data", "mountPath": "/var/lib/postgresql"},
            {"name": "postgres", "mountPath": "/postgres", "readOnly": True},
            {
                "name": "postgres",
                "mountPath": "/docker-entrypoint-initdb.d/databases.sh",
                "subPath": "databases.sh",
                "readOnly": True,
            },
            {"name": "secrets", "mountPath": "/run/secrets", "readOnly": True},
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a container's own
            {"name": "socket", "mountPath": "/var/run/postgresql"},
        ],
        "resources": resources("250m", "2Gi"),
        "securityContext": HARDENED,
    }
    pod = {
        "securityContext": {**RESTRICTED, "runAsUser": 999, "runAsGroup": 999, "fsGroup": 999},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 60,
        "containers": [container],
        "volumes": [
            {"name": "postgres", "configMap": {"name": "postgres", "defaultMode": 0o555}},
            {"name": "secrets", "secret": {"secretName": "sql-users", "defaultMode": 0o440}},
            {"name": "socket", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            TLS_VOLUME,
            _WRITABLE,
        ],
    }
    made = workload("StatefulSet", "postgres", pod, replicas=1)
    made["spec"] |= {"serviceName": "postgres", "volumeClaimTemplates": [_claim("20Gi")]}
    return [service_of("postgres", [{"name": "postgres", "port": 5432}], headless=True), made]


def _claim(storage: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"metadata": {"name": "data"}, "spec": spec}


def _ours(name: str, args: list[str], env: list[dict[str, Any]], memory: str) -> dict[str, Any]:
    """A pod with one of our programs; it may write to /tmp alone."""
    container = {
        "name": "ephemera",
        "image": IMAGE,
        "args": args,
        "env": env,
        "volumeMounts": [
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
        "resources": resources("100m", memory),
        "securityContext": HARDENED,
    }
    return {
        "securityContext": {**RESTRICTED, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **spread(name),
        "containers": [container],
        "volumes": [TLS_VOLUME, _WRITABLE],
    }


def _told(pod: dict[str, Any]) -> dict[str, Any]:
    """A program that is also told what the map and the secret `settings` have, where there are such."""
    sources = [{kind: {"name": "settings", "optional": True}} for kind in ("configMapRef", "secretRef")]
    pod["containers"][0]["envFrom"] = sources
    return pod


def _environment(service: Service) -> list[dict[str, Any]]:
    secrets = {
        "REDIS": ("redis-users", f"redis-{service.name}"),
        "SQL": ("sql-users", f"sql-{service.name}"),
        "EPHEMERA_METRICS_TOKEN": ("ephemera", "metrics"),
    }
    plain = environment(service, "$(REDIS)", "$(SQL)", "")
    del plain["EPHEMERA_METRICS_TOKEN"]
    return [*env_of_secrets(secrets), *({"name": name, "value": value} for name, value in plain.items())]


def _service(service: Service) -> list[dict[str, Any]]:
    env = _environment(service)
    env += env_of_secrets({name: ("ephemera", secret) for name, secret in service.secrets.items()})
    args = ["serve", service.name, "--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104
    pod = _told(_ours(service.name, args, env, service.memory))
    ports = [{"name": "http", "port": PORT}]
    if service.name == "feed":
        ports.append({"name": "grpc", "port": 50051})
    [container] = pod["containers"]
    container |= {
        "ports": [{"name": each["name"], "containerPort": each["port"]} for each in ports],
        **http_probes("http"),
    }
    made = workload("Deployment", service.name, pod, replicas=service.replicas)
    return [service_of(service.name, ports), made, budget(service.name)]


def _worker(service: Service) -> dict[str, Any]:
    pod = _told(_ours(f"{service.name}-worker", list(service.worker), _environment(service), "1Gi"))
    return workload(
        "Deployment", f"{service.name}-worker", {**pod, "terminationGracePeriodSeconds": 60}, replicas=2
    )


def _console(service: Service) -> list[dict[str, Any]]:
    """A console for each service; reach it by `kubectl port-forward`."""
    name = f"{service.name}-console"
    secrets = {
        "REDIS": ("redis-users", "redis-console"),
        "SQL": ("sql-users", f"sql-{service.name}"),
        "EPHEMERA_CONSOLE_PASSWORD": ("ephemera", "console"),
        "EPHEMERA_METRICS_TOKEN": ("ephemera", "metrics"),
    }
    plain = {
        "EPHEMERA_URL": cache_url(service, name, "$(REDIS)"),
        "EPHEMERA_QUEUE_URL": queue_url(service, name, "$(REDIS)"),
        "EPHEMERA_DATABASE_URL": database_url(service, "$(SQL)"),
    }
    env = [*env_of_secrets(secrets), *({"name": key, "value": value} for key, value in plain.items())]
    metrics = ["--metrics-url", f"http://{service.name}:{PORT}/metrics"]
    pod = _ours(name, ["console", "--catalogue", service.name, *metrics], env, "512Mi")
    return [workload("Deployment", name, pod, replicas=1)]


def _store(name: str, image: str, port: int, path: str, user: int) -> list[dict[str, Any]]:
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 10}
    container = {
        "name": name,
        "image": image,
        "ports": [{"name": name, "containerPort": port}],
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "data", "mountPath": path},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
            *(
                [{"name": "tmp", "mountPath": "/qdrant/snapshots", "subPath": "snapshots"}]
                if name == "qdrant"
                else []
            ),
        ],
        "resources": resources("100m", "1Gi"),
        "securityContext": HARDENED,
    }
    pod = {
        "securityContext": {**RESTRICTED, "runAsUser": user, "runAsGroup": user, "fsGroup": user},
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [_WRITABLE],
    }
    made = workload("StatefulSet", name, pod, replicas=1)
    made["spec"] |= {"serviceName": name, "volumeClaimTemplates": [_claim("10Gi")]}
    return [service_of(name, [{"name": name, "port": port}], headless=True), made]
