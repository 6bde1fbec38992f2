"""Web Push messages: encrypted for one browser (RFC 8291), and signed for its push service (VAPID, RFC 8292).

pywebpush does both; it comes with the extra `push`, and is imported only where a key is configured. Messages
are sent elsewhere (`push`), because their address comes from the user.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ephemera_services.runtime import Secret

_KEEP = 86_400  # seconds that a push service keeps a message for a browser that is offline


class PushMessages:
    """Encrypts and signs with the service's key."""

    def __init__(self, key: Secret, contact: str) -> None:
        from py_vapid import Vapid02

        self._vapid = Vapid02.from_string(key.reveal())
        self._contact = contact
        public = self._vapid.public_key
        if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
            raise TypeError("the key is not one of the curve P-256")
        self._sign("https://push.example.com")
        point = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.public_key = base64.urlsafe_b64encode(point).decode().rstrip("=")
        """The `applicationServerKey` of a subscription."""

    def create(
        self, endpoint: str, p256dh: str, auth: str, payload: bytes, topic: str
    ) -> tuple[bytes, dict[str, str]]:
        """The body and the headers of a request; of a topic, the push service keeps the newest alone."""
        from pywebpush import WebPusher

        subscription = {"endpoint": endpoint, "keys": {"p256dh": p256dh, "auth": auth}}
        body: bytes = WebPusher(subscription).encode(payload)["body"]
        parts = urlsplit(endpoint)
        headers = {
            **self._sign(f"{parts.scheme}://{parts.netloc}"),
            "content-type": "application/octet-stream",
            "content-encoding": "aes128gcm",
            "ttl": str(_KEEP),
            "topic": topic,
        }
        return body, headers

    def _sign(self, audience: str) -> dict[str, str]:
        headers: dict[str, str] = self._vapid.sign({"sub": self._contact, "aud": audience})
        return headers


def push_problems(key: Secret | None, contact: str | None) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of push: the setting's name, and the problem."""
    if key is None:
        return
    if find_spec("pywebpush") is None:
        yield "VAPID_KEY", "it needs pywebpush: pip install 'ephemera-services[push]'"
    elif contact is None:
        yield "VAPID_CONTACT", "set the address for push services, such as mailto:operator@example.com"
    else:
        try:
            PushMessages(key, contact)
        except Exception:  # the libraries raise many kinds, and their texts may have the key
            problem = "with VAPID_CONTACT (mailto: or https://) it must be a P-256 private key in base64url"
            yield "VAPID_KEY", problem


def is_public_key(p256dh: str) -> bool:
    """Whether a browser's key is a point on the curve."""
    try:
        point = base64.urlsafe_b64decode(p256dh + "=")
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except (ValueError, binascii.Error):
        return False
    return True
