"""All areas, in the order in which they are fuzzed."""

from __future__ import annotations

from tests.fuzz.cookies import COOKIES
from tests.fuzz.headers import HEADERS
from tests.fuzz.keys import KEYS
from tests.fuzz.openapi import OPENAPI
from tests.fuzz.resp import RESP
from tests.fuzz.stored_values import STORED_VALUES
from tests.fuzz.tokens import TOKENS
from tests.fuzz.values import VALUES

AREAS = {area.name: area for area in (KEYS, VALUES, COOKIES, TOKENS, HEADERS, RESP, STORED_VALUES, OPENAPI)}
