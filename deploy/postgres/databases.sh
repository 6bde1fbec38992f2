#!/bin/sh
# Run once by the image, on an empty data folder: a database and its owner for each service.
#   DATABASES   their names
#   SECRETS     a folder with a file for each owner's password, named sql-NAME; /run/secrets unless given
set -eu
secrets=${SECRETS:-/run/secrets}
: "${PGPASSWORD:=$(cat "$secrets/sql-admin")}"
export PGPASSWORD
for name in $DATABASES; do
    [ -s "$secrets/sql-$name" ] || { echo "there is no password for $name: $secrets/sql-$name" >&2; exit 1; }
    {
        printf '\\set password %s\n' "$(tr -d '\r\n' <"$secrets/sql-$name")"
        cat <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
SQL
    } | psql --quiet --username postgres --dbname postgres --set ON_ERROR_STOP=1 --set name="$name"
done
