"""PostgreSQL takes its settings, and its script makes a database and an owner for each service."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psycopg

from ephemera import embedded
from ephemera.embedded import Postgres
from ephemera.embedded._postgresql import ordinary_user, runnable_install

FOLDER = Path(__file__).parents[2] / "deploy/postgres"
NAMES = ("identity", "slides")


def _programs(postgres: Postgres) -> Path:
    return runnable_install(ordinary_user(postgres.data)) / "bin"


def test_the_script_makes_databases_with_owners(tmp_path: Path) -> None:
    """Each service owns its database, and only it can connect, with the password of its secret."""
    for name in ("admin", *NAMES, *(f"{name}-console" for name in NAMES)):
        (tmp_path / f"sql-{name}").write_text(f"{name}0123456789abcdef\n")
    with embedded.postgres() as postgres:
        folder = postgres.url.partition("host=")[2].replace("%2F", "/")
        variables = {
            "PATH": f"{_programs(postgres)}:{os.environ['PATH']}",
            "PGHOST": folder,
            "SECRETS": str(tmp_path),
            "DATABASES": " ".join(NAMES),
        }
        script = ["/bin/sh", str(FOLDER / "databases.sh")]
        done = subprocess.run(script, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with psycopg.connect(postgres.url) as sql:
            owners = "SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE datname = ANY(%s)"
            assert sorted(sql.execute(owners, [list(NAMES)]).fetchall()) == [(name, name) for name in NAMES]
            allowed = "SELECT has_database_privilege('identity', %s, 'CONNECT')"
            assert [sql.execute(allowed, [name]).fetchone() for name in NAMES] == [(True,), (False,)]
            console = allowed.replace("'identity'", "'identity-console'")
            assert [sql.execute(console, [name]).fetchone() for name in NAMES] == [(True,), (False,)]
            kept = sql.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'slides'").fetchone()
        assert kept is not None
        assert kept[0].startswith("SCRAM-SHA-256$")
        again = subprocess.run(script, env=variables, capture_output=True, text=True, check=False)
        assert again.returncode != 0, "it is for an empty server, and says so"
        assert "0123456789abcdef" not in done.stderr + again.stderr


def test_its_settings_are_known(postgres: Postgres, tmp_path: Path) -> None:
    """The server knows every setting of the file; those of TLS are left out, as ours was built without it."""
    lines = (FOLDER / "postgresql.conf").read_text().splitlines()
    file = tmp_path / "postgresql.conf"
    file.write_text("\n".join(line for line in lines if not line.startswith("ssl")) + "\n")
    server = str(_programs(postgres) / "postgres")
    for name, value in (("max_connections", "200"), ("log_statement", "none")):
        words = [server, "-C", name, "-D", str(postgres.data), "-c", f"config_file={file}"]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
        assert said.stdout.strip() == value, said.stderr
