"""All areas, in the order in which they are tried."""

from __future__ import annotations

from fuzz.cookies import COOKIES
from fuzz.headers import HEADERS
from fuzz.keys import KEYS
from fuzz.openapi import OPENAPI
from fuzz.resp import RESP
from fuzz.tokens import TOKENS
from fuzz.values import VALUES

AREAS = {area.name: area for area in (KEYS, VALUES, COOKIES, TOKENS, HEADERS, RESP, OPENAPI)}
