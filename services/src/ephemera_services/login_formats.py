"""What people sign in by: the same for those who register and for the administrators that settings name."""

from __future__ import annotations

ADDRESS = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}$"
LONGEST_ADDRESS = 254
LOGIN_NAME = r"^[A-Za-z0-9._-]{1,40}$"
