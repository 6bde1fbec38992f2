"""Schemathesis against a running service: what it answers is what its OpenAPI document says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
)
_SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))


def conform(
    url: str, *options: str, examples: int = 15, config: Path | None = None, seed: int | None = None
) -> None:
    """Try every operation with generated requests, the same ones in each run, or those of a seed.

    Fails with what was found.
    """
    configured = () if config is None else ("--config-file", str(config))
    drawn = ("--seed", "1", "--generation-deterministic") if seed is None else ("--seed", str(seed))
    command = [
        *(_SCHEMATHESIS, *configured, "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS)),
        *("--phases", "examples,coverage,fuzzing", "--max-examples", str(examples)),
        *(*drawn, "--no-color"),
        *("--suppress-health-check", "all", "--request-timeout", "20", "--continue-on-failure", *options),
    ]
    patience = 240  # seconds; a machine that runs tests is busy
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
