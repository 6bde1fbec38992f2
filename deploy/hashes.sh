#!/bin/sh
# Records the SHA-256 of every package that the image installs, in the versions of constraints.txt, once; the
# build of the image then installs exactly these files, and fails for any other:
#   hashes.sh                 in the Python of the image, from your package index; needs docker and digests.env
#
# hashes.txt names no index, so it works with every one that has the same files. Run it again after a change of
# constraints.txt, and review what changed.
set -eu
cd "$(dirname "$0")/.."
. deploy/digests.env
: "${EPHEMERA_DIGEST_PYTHON:?run deploy/digests.sh}"
docker run --rm --volume "$PWD:/source:ro" --workdir /tmp --env PIP_INDEX_URL "python@$EPHEMERA_DIGEST_PYTHON" sh -eu -c '
    pip download --quiet --disable-pip-version-check --dest packages --constraint /source/constraints.txt \
        "/source[tracing]" /source/services hatchling >&2
    python /source/tools/deploy/hashes.py packages' >deploy/hashes.txt.new
mv deploy/hashes.txt.new deploy/hashes.txt
