"""SEC23, deployment: no egress policy, open stores, shared keys and passwords, secrets in arguments, tags."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.deploy.test_generated import _documents, _pods
from tools.deploy.compose import document
from tools.deploy.hashes import requirements
from tools.deploy.kubernetes import NO_DIGEST
from tools.deploy.layout import CLIENTS, IMAGES, SECRETS, SERVER_GROUPS, SERVICES

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "app.kubernetes.io/name"


def policies() -> list[Any]:
    """Every network policy, as it is in the files."""
    return [each for each in _documents() if each["kind"] == "NetworkPolicy"]


def test_sec23_nothing_is_sent_or_received_unless_listed() -> None:
    """One policy denies both directions for all pods."""
    [closed] = [each for each in policies() if each["metadata"]["name"] == "deny-all"]
    assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def allowed(direction: str, peer: str) -> Iterator[tuple[str, str, int]]:
    """Client, server and port of each rule in one direction that names a pod."""
    for policy in policies():
        part = policy["spec"]["podSelector"].get("matchLabels", {}).get(NAME)
        for rule in policy["spec"].get(direction, ()):
            for each in rule.get(peer, ()):
                other = each.get("podSelector", {}).get("matchLabels", {}).get(NAME)
                if part and other:
                    pair = (part, other) if direction == "egress" else (other, part)
                    yield from ((*pair, port["port"]) for port in rule["ports"])


def test_sec23_every_connection_is_open_at_both_ends() -> None:
    """What a client may send its server accepts, and the reverse; public services accept from all."""
    public = {each.name for each in SERVICES if each.public}
    sent = {each for each in allowed("egress", "to") if each[1] not in public}
    assert sent == set(allowed("ingress", "from"))
    assert ("league", "pages", 6379) in sent
    assert not {("league", "cache", 6379), ("feed", "pages", 6379), ("cache", "postgres", 5432)} & sent


def test_sec23_only_programs_that_call_models_reach_the_internet() -> None:
    """No server and no console does; private networks are excluded for those who do."""
    out = {}
    for policy in policies():
        for rule in policy["spec"].get("egress", ()):
            for each in rule["to"]:
                if "ipBlock" in each:
                    out[policy["spec"]["podSelector"]["matchLabels"][NAME]] = each["ipBlock"]["except"]
    reaching = [each for each in SERVICES if each.reaches_out]
    assert out.keys() == {name for each in reaching for name in (each.name, *each.worker_names())}
    assert all({"10.0.0.0/8", "169.254.0.0/16"} <= set(blocks) for blocks in out.values())


def test_sec23_browsers_keep_to_tls_for_public_services() -> None:
    """Public services send HSTS, in both kinds of files."""
    public = {each.name for each in SERVICES if each.public}
    composed = document()["services"]
    assert {name for name in public if composed[name]["environment"]["EPHEMERA_HSTS"] == "365d"} == public
    sending = {
        name
        for name, pod in _pods()
        if {"name": "EPHEMERA_HSTS", "value": "365d"} in pod["containers"][0].get("env", [])
    }
    assert public <= sending


def test_sec23_each_part_has_a_certificate_of_its_own() -> None:
    """In Kubernetes and in Compose, a part mounts the folder or secret of its name and no other."""
    for name, pod in _pods():
        mounted = [each["secret"]["secretName"] for each in pod["volumes"] if each["name"] == "tls"]
        assert mounted == [f"tls-{name}"]
    for name, service in document()["services"].items():
        part = re.sub(r"-\d+$", "", name)
        assert [each for each in service["volumes"] if ":/tls:" in each] == [f"./tls/{part}:/tls:ro"], name


def test_sec23_each_part_has_passwords_of_its_own() -> None:
    """No two programs share a Redis or SQL user, and no two consoles or services a password or token."""
    uses: Counter[str] = Counter()
    for _, service in document()["services"].items():
        uses.update(set(re.findall(r"EPHEMERA_SECRET_\w+", json.dumps(service.get("environment", {})))))
    for service in SERVICES:
        upper = service.name.upper()
        assert uses[f"EPHEMERA_SECRET_CONSOLE_{upper}"] == 1
        assert uses[f"EPHEMERA_SECRET_REDIS_{upper}_CONSOLE"] == 1
        assert uses[f"EPHEMERA_SECRET_SQL_{upper}_CONSOLE"] == 1
        # A worker is its service; a console reads its own service's metrics.
        assert uses[f"EPHEMERA_SECRET_REDIS_{upper}"] == 1 + len(service.workers)
        assert uses[f"EPHEMERA_SECRET_METRICS_{upper}"] == 2 + len(service.workers)
    assert not {"console", "metrics", "redis-console", "redis-watcher"} & set(SECRETS)


def test_sec23_a_server_is_given_the_passwords_of_its_users_only() -> None:
    """A part's container has the secrets that it needs; the cluster has none of league's."""
    for name, service in document()["services"].items():
        for secret in service.get("secrets", ()):
            assert secret.startswith(("redis-", "sql-", "mongodb-")), name
    assert "redis-league" not in document()["services"]["cache-0"]["secrets"]
    assert "redis-identity" not in document()["services"]["pages-0"]["secrets"]
    for name, pod in _pods():
        for volume in pod["volumes"]:
            if "secret" in volume and not volume["secret"]["secretName"].startswith("tls-"):
                keys = {each["key"] for each in volume["secret"]["items"]}
                assert ("redis-league" in keys) == (name in ("pages", "queue", "sentinel")), name


def test_sec23_qdrant_and_mongodb_require_tls_and_a_password() -> None:
    """Both in Kubernetes and in Compose; MongoDB's users are from files, feed's reaches only its database."""
    compose, pods = document()["services"], dict(_pods())
    qdrant = {each["name"]: each for each in pods["qdrant"]["containers"][0]["env"]}
    assert qdrant["QDRANT__SERVICE__API_KEY"]["valueFrom"]["secretKeyRef"]["key"] == "qdrant"
    assert qdrant["QDRANT__SERVICE__ENABLE_TLS"]["value"] == "true"
    assert compose["qdrant"]["environment"]["QDRANT__SERVICE__API_KEY"] == "${EPHEMERA_SECRET_QDRANT:?}"
    for words in (pods["mongodb"]["containers"][0]["args"], compose["mongodb"]["command"]):
        assert words[0] == "--auth"
        assert words[words.index("--tlsMode") + 1] == "requireTLS"
    assert compose["mongodb"]["environment"]["MONGO_INITDB_ROOT_PASSWORD_FILE"].startswith("/run/secrets/")
    assert 'roles: [{ role: "readWrite", db: "feed" }]' in (DEPLOY / "mongodb/users.js").read_text()
    for name in ("slides", "slides-worker", "slides-documents", "scripture", "scripture-worker"):
        assert any("QDRANT_KEY" in variable for variable in compose[name]["environment"]), name


def test_sec23_no_secret_is_on_a_command_line() -> None:
    """Commands, arguments and health checks refer to no secret; programs read them from the environment."""
    commands = []
    for service in document()["services"].values():
        commands += [service.get("entrypoint"), service.get("command"), service.get("healthcheck")]
    for _, pod in _pods():
        for container in pod["containers"]:
            commands += [container.get(each) for each in ("command", "args", "livenessProbe", "startupProbe")]
    for command in filter(None, commands):
        words = json.dumps(command)
        assert not re.search(r"EPHEMERA_SECRET|\$\(REDIS\)|\$\(SQL\)|--pass\b|--url", words), words


def test_sec23_images_are_pinned_by_digest() -> None:
    """Compose requires a variable for each foreign image; Kubernetes has a digest that no image has."""
    for name, service in document()["services"].items():
        if "build" in service or name == "mark":
            assert service["image"] == IMAGES[0].reference
        else:
            assert re.fullmatch(r"[\w/.-]+:[\w.-]+@\$\{EPHEMERA_DIGEST_\w+:\?.+\}", service["image"]), name
        if "build" in service:
            assert "@${EPHEMERA_DIGEST_PYTHON:?" in service["build"]["args"]["PYTHON"]
    for name, pod in _pods():
        assert [each["image"].partition("@")[2] for each in pod["containers"]] == [NO_DIGEST], name
    froms = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert froms == ["${PYTHON}", "${PYTHON}"]


def test_sec23_digests_are_looked_up_once_and_required(tmp_path: Path) -> None:
    """The script writes both files from what the registry says, and nothing when it says no digest."""
    shutil.copy(DEPLOY / "digests.sh", tmp_path)
    shutil.copy(DEPLOY / "images.txt", tmp_path)
    (tmp_path / "registry.sh").write_text(
        '#!/bin/sh\necho "sha256:$(printf %s "$1" | sha256sum | cut -c1-64)"\n'
    )
    script = ["/bin/sh", str(tmp_path / "digests.sh"), "registry.example.com/ephemera:0.1.0"]
    wrong = subprocess.run(script, env={"INSPECT": "echo latest", "PATH": "/usr/bin:/bin"}, check=False)
    assert wrong.returncode != 0
    assert not (tmp_path / "digests.env").exists()
    registry = f"/bin/sh {tmp_path / 'registry.sh'}"
    subprocess.run(script, env={"INSPECT": registry, "PATH": "/usr/bin:/bin"}, check=True)
    lines = (tmp_path / "digests.env").read_text().splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        f"EPHEMERA_DIGEST_{each.variable}" for each in IMAGES[1:]
    ]
    assert all(re.fullmatch(r"\w+=sha256:[0-9a-f]{64}", line) for line in lines)
    made = yaml.safe_load((tmp_path / "kubernetes/digests/kustomization.yaml").read_text())
    assert made["kind"] == "Component"
    ours = made["images"][-1]
    assert (ours["name"], ours["newName"]) == ("ephemera", "registry.example.com/ephemera")
    used = {each["image"].partition(":")[0] for _, pod in _pods() for each in pod["containers"]}
    assert used <= {each["name"] for each in made["images"]}
    for path in sorted((DEPLOY / "kubernetes").rglob("kustomization.yaml")):
        if path.parent.name != "digests":
            text = yaml.safe_load(path.read_text())
            assert (path.parent / text["components"][0]).resolve() == DEPLOY / "kubernetes/digests"
            assert all((path.parent / each).exists() for each in text["resources"])


def test_sec23_packages_are_installed_by_hash(tmp_path: Path) -> None:
    """The hashes of downloaded files suffice for pip, and another file of the same version is refused."""
    packages = tmp_path / "packages"
    packages.mkdir()
    wheel = _wheel(packages, "thing", "a")
    (packages / "ephemera_services-0.1.0-py3-none-any.whl").write_bytes(b"ours")
    text = requirements(packages)
    assert re.fullmatch(r"thing==1\.0 --hash=sha256:[0-9a-f]{64}\n", text)
    (tmp_path / "hashes.txt").write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index"]
    pip += ["--find-links", str(packages), "--require-hashes", "--requirement", str(tmp_path / "hashes.txt")]
    environment = {"PATH": "/usr/bin:/bin", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""}
    good = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stderr
    wheel.unlink()
    _wheel(packages, "thing", "b")
    poisoned = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
    assert poisoned.returncode != 0
    assert "DO NOT MATCH THE HASHES" in poisoned.stderr
    build = (DEPLOY / "Dockerfile").read_text()
    assert "--require-hashes --requirement hashes.txt" in build
    assert "--no-index --no-deps --no-build-isolation . ./services" in build


def _wheel(folder: Path, name: str, content: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", content)
        file.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        file.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what the script makes."""
    folder = tmp_path_factory.mktemp("deploy")
    script = shutil.copy(DEPLOY / "certificates.sh", folder)
    subprocess.run(["/bin/sh", script], check=True)
    return folder / "tls"


def test_sec23_the_script_certifies_every_part(certificates: Path) -> None:
    """Each part has a key of its own; only servers can pose as one, and only as their own group."""
    parts = {path.name: x509.load_pem_x509_certificate((path / "tls.crt").read_bytes())
             for path in certificates.iterdir() if path.name != "authority"}  # fmt: skip
    assert parts.keys() == {*SERVER_GROUPS, *CLIENTS}
    authority = x509.load_pem_x509_certificate((certificates / "authority/ca.crt").read_bytes())
    keys = {certificate.public_key().public_numbers() for certificate in parts.values()}  # type: ignore[union-attr]
    assert len(keys) == len(parts)
    for name, certificate in parts.items():
        certificate.verify_directly_issued_by(authority)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == (name in SERVER_GROUPS), name
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        expected = [name, f"*.{name}"] if name in SERVER_GROUPS else [name]
        assert names.get_values_for_type(x509.DNSName) == expected
        certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)  # or it raises
        assert not (certificates / name / "ca.key").exists()
        assert (certificates / name / "tls.key").stat().st_mode & 0o077 == 0
