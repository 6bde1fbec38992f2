#!/bin/sh
# Run once by the image, on an empty data folder: a database and its owner for each service, and a user
# for its console with the owner's rights and a password of its own.
#   DATABASES   their names
#   SECRETS     a folder with a file for each owner's password, named sql-NAME; /run/secrets unless given
set -eu
secrets=${SECRETS:-/run/secrets}
: "${PGPASSWORD:=$(cat "$secrets/sql-admin")}"
export PGPASSWORD
for name in $DATABASES; do
    for user in "$name" "$name-console"; do
        [ -s "$secrets/sql-$user" ] || { echo "there is no password for $user: $secrets/sql-$user" >&2; exit 1; }
    done
    {
        printf '\\set password %s\n' "$(tr -d '\r\n' <"$secrets/sql-$name")"
        printf '\\set console_password %s\n' "$(tr -d '\r\n' <"$secrets/sql-$name-console")"
        cat <<'SQL'
CREATE ROLE :"name" LOGIN PASSWORD :'password';
CREATE DATABASE :"name" OWNER :"name";
REVOKE ALL ON DATABASE :"name" FROM PUBLIC;
CREATE ROLE :"console" LOGIN PASSWORD :'console_password' IN ROLE :"name";
SQL
    } | psql --quiet --username postgres --dbname postgres --set ON_ERROR_STOP=1 --set name="$name" \
        --set console="$name-console"
done
