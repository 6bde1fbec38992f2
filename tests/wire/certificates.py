"""A private certificate authority, and certificates signed by it."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = dt.datetime.now(dt.UTC)
_DAY = dt.timedelta(days=1)


class Authority:
    """An authority that signs certificates into a folder; `ca` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = folder / f"{name}-ca.pem"
        own = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        signed = own.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.ca.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str, *hosts: str, expired: bool = False) -> tuple[Path, Path]:
        """The files of a certificate for these hosts, and of its key; `expired` an hour ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(subject, key, expired=expired).add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        signed = builder.sign(self._key, hashes.SHA256())
        certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        private.write_bytes(_unencrypted(key))
        return certificate, private

    def server_context(
        self, *hosts: str, client_certificates: bool = False, expired: bool = False
    ) -> ssl.SSLContext:
        """The TLS context of a server for these hosts."""
        name = f"server-{len(list(self._folder.iterdir()))}"
        certificate, key = self.certify(name, *hosts, expired=expired)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        if client_certificates:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
    ) -> x509.CertificateBuilder:
        bare = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=_NOW - _DAY,
            not_valid_after=_NOW - _DAY / 24 if expired else _NOW + _DAY,
        )
        # Required by RFC 5280, and by Python since 3.13.
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return bare.add_extension(own, critical=False).add_extension(signer, critical=False)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _unencrypted(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
