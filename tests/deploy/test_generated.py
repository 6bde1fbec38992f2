"""The files of `deploy/` are as they would be generated, fit their schemas, and hold no secret."""

from __future__ import annotations

import copy
import json
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from ephemera_services.runtime import SHUTDOWN_TIMEOUT, STOP_TIMEOUT
from tests.cli.commands import ephemera
from tools.deploy.__main__ import generated, old
from tools.deploy.compose import document
from tools.deploy.kubernetes import NO_DIGEST, manifests
from tools.deploy.layout import CLIENTS, SECRETS, SERVER_GROUPS, SERVICES

FOLDER = Path(__file__).parents[2] / "deploy"
KUBERNETES = "1.37.0"
"""Whose schemas are in kubernetes-validate."""
COMPOSE = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text())


def test_no_generated_file_is_old() -> None:
    """A change of the layout, a catalogue or the rules is in the files: python -m tools.deploy."""
    assert old() == []


def test_no_file_is_left_over() -> None:
    """Whatever is in the folders of generated files is generated, or one of ours by hand."""
    by_hand = {"servers/start.sh"}
    there = {
        str(path.relative_to(FOLDER))
        for path in FOLDER.rglob("*")
        if path.suffix in (".yaml", ".conf", ".acl") and "digests" not in path.parts
    }
    there |= {str(path.relative_to(FOLDER)) for path in (FOLDER / "servers").iterdir()}
    assert there - generated().keys() - by_hand == {"postgres/postgresql.conf", "postgres/pg_hba.conf"}


@pytest.mark.parametrize(
    ("group", "role", "memory"), [("cache", "cache", "1gb"), ("queue", "queue", "512mb")]
)
def test_settings_and_users_are_what_the_commands_print(group: str, role: str, memory: str) -> None:
    """The files begin with what `ephemera server-config` prints, and hold the lines of `ephemera acl`."""
    printed = ephemera("server-config", "--role", role, "--memory", memory).out
    assert (FOLDER / f"servers/{group}.conf").read_text().startswith(printed)
    line = ephemera("acl", "slides", "--role", role, "--for", "service", "--for", "metrics").out
    assert line.splitlines()[0] in (FOLDER / f"servers/{group}.acl").read_text().splitlines()


def compose_problems(given: Any) -> list[str]:
    """What is wrong with a Compose file, by the Compose Specification's schema."""
    validator = jsonschema.validators.validator_for(COMPOSE)(COMPOSE)
    return [f"{list(each.path)}: {each.message}" for each in validator.iter_errors(given)]


def test_the_compose_file_fits_the_specification() -> None:
    """compose.yaml, as it is read back, is valid; one with a misspelt word is not."""
    read = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    assert read == document()
    assert compose_problems(read) == []
    wrong = copy.deepcopy(read)
    wrong["services"]["identity"]["red_only"] = True
    assert compose_problems(wrong)


def test_services_and_workers_take_more_settings() -> None:
    """By settings.env, or by the map and secret `settings`; README's examples are settings."""
    ours = {name for each in SERVICES for name in (each.name, *each.worker_names())}
    composed = document()["services"]
    assert {name for name, each in composed.items() if "env_file" in each} == ours
    deployed = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["containers"][0]
        for name in ("40-services", "41-workers")
        for each in manifests()[name]
        if each["kind"] == "Deployment"
    }
    assert deployed.keys() == ours
    for container in deployed.values():
        refs = {kind: each[kind] for each in container["envFrom"] for kind in each}
        assert refs == {key: {"name": "settings", "optional": True} for key in ("configMapRef", "secretRef")}
    examples = re.findall(r"^(EPHEMERA_\w+)=\S", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert {"EPHEMERA_TRUSTED_PROXIES", "EPHEMERA_FEED_MONGODB_URL"} < set(examples)
    documented = (FOLDER.parent / "docs/reference/settings.md").read_text()
    assert [each for each in examples if f"`{each}`" not in documented] == []


def test_the_compose_file_is_whole() -> None:
    """Services, networks, volumes and secrets that are named are there, and dependencies can be met."""
    read = document()
    for name, service in read["services"].items():
        volumes = {each.partition(":")[0] for each in service.get("volumes", ()) if not each.startswith(".")}
        assert volumes <= read["volumes"].keys(), name
        assert {*service["networks"]} <= read["networks"].keys(), name
        assert {*service.get("secrets", ())} <= read["secrets"].keys(), name
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in read["services"][other], (
                name,
                other,
            )
    assert read["volumes"].keys() == {
        each.partition(":")[0]
        for service in read["services"].values()
        for each in service.get("volumes", ())
        if not each.startswith(".")
    }
    cache = [name for name in read["services"] if re.fullmatch(r"cache-\d", name)]
    sentinels = [name for name in read["services"] if name.startswith("sentinel-")]
    assert (len(cache), len(sentinels)) == (6, 3)


def test_every_manifest_fits_kubernetes() -> None:
    """Each document is valid by the schema of its kind, and unknown members are not; a wrong one fails."""
    documents = list(_documents())
    assert len(documents) > 40
    for each in documents:
        kubernetes_validate.validate(each, KUBERNETES, strict=True)
    wrong = copy.deepcopy(next(each for each in documents if each["kind"] == "Deployment"))
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


def _documents() -> Iterator[Any]:
    """Every document, as kubectl would read it."""
    for path in sorted((FOLDER / "kubernetes").rglob("*.yaml")):
        if path.name == "kustomization.yaml":
            continue
        yield from yaml.safe_load_all(path.read_text())


def _pods() -> Iterator[tuple[str, Any]]:
    for each in _documents():
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]


def test_every_container_is_confined() -> None:
    """No root, no privileges, a file system that cannot be written to, limits, and probes where it serves."""
    for name, pod in _pods():
        security = pod["securityContext"]
        assert security["runAsNonRoot"], name
        assert security["runAsUser"] > 0, name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"], name
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), name
            if "ports" in container:
                assert {"livenessProbe", "readinessProbe"} <= container.keys(), name
    for name, service in document()["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert service["deploy"]["resources"]["limits"].keys() == {"memory", "cpus"}, name
        assert service["image"].startswith("ephemera:") or int(service["user"].partition(":")[0]) > 0, name


def test_services_are_asked_whether_they_live_and_are_ready() -> None:
    """Every service has /healthz as its liveness and /readyz as its readiness."""
    pods = dict(_pods())
    for service in SERVICES:
        [container] = pods[service.name]["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert "/healthz" in document()["services"][service.name]["healthcheck"]["test"][-1]


def test_processes_are_killed_only_after_they_could_end() -> None:
    """A service gets time until no proxy routes to it, then for its requests; a worker for its jobs."""
    pods, composed = dict(_pods()), document()["services"]
    for service in SERVICES:
        pod = pods[service.name]
        routed = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert routed >= 5, service.name
        assert pod["terminationGracePeriodSeconds"] > routed + STOP_TIMEOUT + 5, service.name
        assert int(composed[service.name]["stop_grace_period"][:-1]) > STOP_TIMEOUT + 5, service.name
        for worker in service.worker_names():
            assert pods[worker]["terminationGracePeriodSeconds"] > SHUTDOWN_TIMEOUT, worker
            assert int(composed[worker]["stop_grace_period"][:-1]) > SHUTDOWN_TIMEOUT, worker


def test_manifests_name_only_what_there_is() -> None:
    """Volumes, config maps, and the keys of secrets are those that exist or that the README tells to make."""
    maps = {each["metadata"]["name"] for each in _documents() if each["kind"] == "ConfigMap"}
    kept = {"redis-users", "sql-users", "ephemera", *(f"tls-{part}" for part in (*SERVER_GROUPS, *CLIENTS))}
    for name, pod in _pods():
        volumes = {each["name"]: each for each in pod.get("volumes", ())}
        for volume in volumes.values():
            assert volume.get("configMap", {"name": "servers"})["name"] in maps, name
            secret = volume.get("secret", {"secretName": f"tls-{name}"})
            assert secret["secretName"] in kept, name
            assert {each["key"] for each in secret.get("items", ())} <= set(SECRETS), name
        for container in pod["containers"]:
            mounted = {each["name"] for each in container.get("volumeMounts", ())}
            assert mounted - volumes.keys() <= {"data"}, name
            for variable in container.get("env", ()):
                reference = variable.get("valueFrom", {}).get("secretKeyRef")
                assert reference is None or (reference["name"] in kept and reference["key"] in SECRETS), name


def test_no_file_holds_a_secret() -> None:
    """What is a secret is named: by secretKeyRef or a file in Kubernetes, by a variable in Compose."""
    for each in _documents():
        assert each["kind"] != "Secret"
    for name, pod in _pods():
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                is_file = variable.get("value", "").startswith("/")
                if re.search(r"PASSWORD$|TOKEN$|_KEY$", variable["name"]) and not is_file:
                    assert "secretKeyRef" in variable["valueFrom"], (name, variable)
    for path in FOLDER.rglob("*"):
        # By the scripts; git ignores them.
        made = {"secrets", "tls", "digests"} & set(path.relative_to(FOLDER).parts)
        if path.is_file() and not made and path.name not in (".env", "digests.env", "hashes.txt"):
            text = path.read_text().replace(NO_DIGEST, "")
            # In a URL, a password is a reference, or (in our programs) what will be one.
            for password in re.findall(r"://[a-z-]+:([^@/\s]+)@", text):
                assert password.startswith(("$(", "${", "{")), (path, password)
            assert not re.search(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", text), f"a digest in {path}"


def test_the_readme_names_every_secret() -> None:
    """The page names each secret that must be created; those that every service has as NAME."""
    text = (FOLDER / "README.md").read_text()
    names = "|".join(each.name for each in SERVICES)
    shown = {
        secret: re.sub(rf"^(redis|sql|metrics|console)-({names})", r"\1-NAME", secret) for secret in SECRETS
    }
    assert [secret for secret, word in shown.items() if f"`{word}`" not in text] == []


def test_the_script_makes_every_secret_once(tmp_path: Path) -> None:
    """For Kubernetes and Compose, without line breaks; existing ones are kept; only the owner reads them."""
    script = shutil.copy(FOLDER / "secrets.sh", tmp_path)
    command = [script, "root@example.com", "root"]
    subprocess.run(command, check=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made.keys() == set(SECRETS)
    called = {made[name] for name in ("identity-admin-email", "slides-admin-email", "league-admin-name")}
    assert called == {"root@example.com", "root"}
    random = [text for name, text in made.items() if not name.endswith(("-email", "-name"))]
    assert all(re.fullmatch(r"[0-9a-f]{64}", text) for text in random)
    assert len({*random}) == len(random)
    lines = (tmp_path / ".env").read_text().splitlines()
    assert dict(line.split("=", 1) for line in lines) == {
        f"EPHEMERA_SECRET_{name.upper().replace('-', '_')}": text for name, text in made.items()
    }
    used = set(re.findall(r"EPHEMERA_SECRET_\w+", (FOLDER / "compose.yaml").read_text()))
    assert used == {line.partition("=")[0] for line in lines}
    assert not any(path.stat().st_mode & 0o077 for path in tmp_path.rglob("*") if path.name != "secrets.sh")
    (tmp_path / "secrets" / "console-slides").unlink()
    subprocess.run(command, check=True)
    again = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert {name for name in SECRETS if again[name] != made[name]} == {"console-slides"}
    for wrong in ([script], [script, "root", "root"]):
        assert subprocess.run(wrong, check=False).returncode == 2


def test_scripts_can_be_run() -> None:
    """Shell scripts are executable and parse."""
    for path in FOLDER.rglob("*.sh"):
        assert path.stat().st_mode & stat.S_IXUSR, path


def test_manifests_are_in_the_order_that_they_are_applied_in() -> None:
    """The namespace comes first: kubectl reads a folder by name."""
    assert next(iter(sorted(manifests()))) == "00-namespace"
