#!/bin/sh
# Makes every secret that there is not yet, beside this file:
#   secrets.sh ADMINISTRATOR'S-E-MAIL LEAGUE'S-ADMINISTRATOR
#
# secrets/NAME   a file for each, for Kubernetes
# .env           the same as variables, for Docker Compose
#
# What is there stays as it is, so it may be run again after an upgrade that needs more of them.
set -eu
[ $# = 2 ] || { echo "usage: $0 you@example.com you" >&2; exit 2; }
case $1 in *@*.*) ;; *) echo "$0: $1 is no e-mail address" >&2; exit 2 ;; esac
cd "$(dirname "$0")"
umask 077
mkdir -p secrets

# Without a line break at the end: Kubernetes would make it part of the password.
make() {
    [ -s "secrets/$1" ] || printf %s "$2" >"secrets/$1"
}

for name in redis-admin redis-replication redis-sentinel sql-admin qdrant mongodb-admin mongodb-feed \
    identity-keys identity-admin slides-admin slides-operator league-admin league-prewarm feed-tokens; do
    make "$name" "$(openssl rand -hex 32)"
done
for service in identity slides scripture feed league; do
    for name in redis-$service redis-$service-console redis-$service-watcher sql-$service sql-$service-console \
        metrics-$service console-$service; do
        make "$name" "$(openssl rand -hex 32)"
    done
done
make identity-admin-email "$1"
make slides-admin-email "$1"
make league-admin-name "$2"

for file in secrets/*; do
    printf 'EPHEMERA_SECRET_%s=%s\n' "$(basename "$file" | tr a-z- A-Z_)" "$(cat "$file")"
done >.env
echo "$(ls secrets | wc -l) secrets are in $(pwd)/secrets and .env; keep them where you keep secrets" >&2
