"""Demo users: `await seed(identity)` creates those that do not exist."""

from __future__ import annotations

from ephemera_services.identity.service import Identity
from ephemera_services.runtime import DEMO_PASSWORD

DEMO_USERS = (
    ("root@example.com", "admin", "Ada", "Root", "", ""),
    ("taro@example.com", "user", "太郎", "山田", "090-1234-5678", "東京都渋谷区1-2-3"),
    ("hanako@example.com", "user", "花子", "佐藤", "080-9876-5432", "大阪府大阪市4-5-6"),
    ("ann@example.com", "user", "Ann", "Smith", "+44 20 7946 0000", "1 High Street, London"),
)


async def seed(identity: Identity) -> list[str]:
    """Create the demo users, one of them an administrator; the addresses that are new."""
    created = []
    password_hash = await identity.passwords.hash(DEMO_PASSWORD)
    for email, role, first_name, last_name, phone, address in DEMO_USERS:
        profile = {"first_name": first_name, "last_name": last_name, "phone": phone, "address": address}
        if await identity.accounts.register(email, password_hash, profile, role=role) is not None:
            created.append(email)
    return created
