#!/bin/sh
# Starts a Valkey or Redis server, or a Sentinel, with the files beside this one:
#   start.sh cache|pages|queue|sentinel [more options of the server]
#
# SETTINGS   the folder of this file
# SECRETS    a folder with a file for each user's password, named redis-USER
# DATA       where it may write; its settings are kept there, with what Sentinel changes in them
# ANNOUNCE   the name by which others reach it
# FIRST      of the queue: name and port of its master when there was none before
# PROGRAM    valkey-server unless given
#
# Passwords are read here and nowhere else: they are in no environment and on no command line.
set -eu
umask 077
group=$1
shift
program=${PROGRAM:-valkey-server}
conf=$DATA/$group.conf

# The file with a user's password.
secret_of() {
    file=$SECRETS/redis-$1
    [ -s "$file" ] || { echo "there is no password for $1: $file" >&2; exit 1; }
}

password() {
    tr -d '\r\n' <"$file"
}

# Who follows whom is up to Sentinel once it was started: it has that written here.
if [ -e "$conf" ]; then
    follows=$(grep '^replicaof ' "$conf" || true)
elif [ "$group" = queue ] && [ "${FIRST% *}" != "$ANNOUNCE" ]; then
    follows="replicaof $FIRST"
else
    follows=
fi

while read -r word user rules; do
    case $user in
    default | probe) echo "$word $user $rules" ;;
    *)
        secret_of "$user"
        echo "$word $user $rules #$(password | sha256sum | cut -c1-64)"
        ;;
    esac
done <"$SETTINGS/$group.acl" >"$DATA/users.acl"

if [ "$group" = sentinel ]; then
    if [ ! -e "$conf" ]; then
        secret_of sentinel
        {
            cat "$SETTINGS/sentinel.conf" "$SETTINGS/tls.conf"
            echo "aclfile $DATA/users.acl"
            echo "sentinel auth-pass queue $(password)"
            echo "sentinel sentinel-pass $(password)"
            echo "sentinel announce-ip $ANNOUNCE"
        } >"$conf"
    fi
    exec "$program" "$conf" --sentinel "$@"
fi
secret_of replication

{
    cat "$SETTINGS/$group.conf" "$SETTINGS/tls.conf"
    echo "dir $DATA"
    echo "aclfile $DATA/users.acl"
    echo "masteruser replication"
    echo "masterauth $(password)"
    case $group in
    cache) echo "cluster-announce-hostname $ANNOUNCE" ;;
    queue) echo "replica-announce-ip $ANNOUNCE" ;;
    esac
    echo "$follows"
} >"$conf.new"
mv "$conf.new" "$conf"
exec "$program" "$conf" "$@"
