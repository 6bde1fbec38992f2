#!/bin/sh
# Makes an authority and a certificate for each part that there is not yet, in tls/ beside this file:
#
# tls/authority/       ca.crt and ca.key: keep the key where you keep secrets, no part needs it
# tls/PART/            ca.crt, tls.crt, tls.key, and tls.pem with both (for MongoDB)
#
# A server's certificate has the names GROUP and *.GROUP; that of any other part only identifies a client, and
# cannot be used to pose as a server. With cert-manager or an authority of yours, make the same parts.
set -eu
cd "$(dirname "$0")"
umask 077
days=${DAYS:-365}
curve="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
mkdir -p tls/authority
if [ ! -s tls/authority/ca.key ]; then
    # shellcheck disable=SC2086 # several words
    openssl req -x509 $curve -days 3650 -subj "/CN=ephemera authority" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout tls/authority/ca.key -out tls/authority/ca.crt 2>/dev/null
fi

certify() {
    part=$1
    mkdir -p "tls/$part"
    [ ! -s "tls/$part/tls.crt" ] || return 0
    {
        echo "basicConstraints=critical,CA:FALSE"
        echo "subjectKeyIdentifier=hash"
        echo "authorityKeyIdentifier=keyid"
        echo "keyUsage=critical,digitalSignature"
        if [ "$2" = server ]; then
            echo "extendedKeyUsage=serverAuth,clientAuth"
            echo "subjectAltName=DNS:$part,DNS:*.$part"
        else
            echo "extendedKeyUsage=clientAuth"
            echo "subjectAltName=DNS:$part"
        fi
    } >"tls/$part/extensions"
    # shellcheck disable=SC2086
    openssl req $curve -subj "/CN=$part" -keyout "tls/$part/tls.key" -out "tls/$part/request" 2>/dev/null
    openssl x509 -req -in "tls/$part/request" -days "$days" -CA tls/authority/ca.crt -CAkey tls/authority/ca.key \
        -extfile "tls/$part/extensions" -out "tls/$part/tls.crt" 2>/dev/null
    rm "tls/$part/extensions" "tls/$part/request"
    cp tls/authority/ca.crt "tls/$part/ca.crt"
    cat "tls/$part/tls.crt" "tls/$part/tls.key" >"tls/$part/tls.pem"
}

for part in cache pages texts queue sentinel postgres qdrant mongodb; do
    certify "$part" server
done
for part in cache-create mark; do
    certify "$part" client
done
for name in identity slides scripture feed league; do
    certify "$name" client
    certify "$name-console" client
done
for part in slides-worker slides-documents scripture-worker feed-worker; do
    certify "$part" client
done
echo "$(ls tls | wc -l) folders are in $(pwd)/tls; each part gets only its own" >&2
