"""Surveys: count every key of a server by keyspace, and inspect a random sample of each.

    async with open_servers("redis://cache.internal") as servers:
        result = await survey(servers, catalogue, SurveyOptions(budget=10))

*What is read.* All key names by SCAN, in pages of a thousand; then type, TTL, size and (on request) contents
of a random sample per keyspace. Undeclared keys are grouped by shape: patterns that cover all of them and
never overlap.

*Cost.* A survey keeps to a time budget and reports what it did not see, with a cursor to resume from. No
other client waits longer than for one page or one pipeline of 100 commands. Nothing is written, and where the
server has `CLIENT NO-TOUCH`, access times stay unchanged.

*When Redis is down.* Opening raises `ConnectionFailed`. A connection lost during the survey leaves the result
of what was seen until then.
"""

from ephemera.operations.survey._key_inspector import ConsumerGroup, ContentReader, SampledKey, inspect_keys
from ephemera.operations.survey._key_shapes import MAX_SHAPES, KeyShapes, Shape, Undeclarable
from ephemera.operations.survey._recognizer import form_of, is_plain, is_word, looks_random, looks_secret
from ephemera.operations.survey._samples import Interval, Reservoir, estimate_matches, estimate_sum
from ephemera.operations.survey._scan import PAGE_SIZE, SCAN_START, format_resume_cursor, parse_resume_cursor
from ephemera.operations.survey._server_info import (
    ServerInfo,
    parse_server_info,
    read_info,
    read_server_info,
)
from ephemera.operations.survey._survey import (
    BUDGET,
    SAMPLE_SIZE,
    KeyspaceSample,
    ProgressCallback,
    Survey,
    SurveyOptions,
    open_servers,
    survey,
)

__all__ = [
    "BUDGET",
    "MAX_SHAPES",
    "PAGE_SIZE",
    "SAMPLE_SIZE",
    "SCAN_START",
    "ConsumerGroup",
    "ContentReader",
    "Interval",
    "KeyShapes",
    "KeyspaceSample",
    "ProgressCallback",
    "Reservoir",
    "SampledKey",
    "ServerInfo",
    "Shape",
    "Survey",
    "SurveyOptions",
    "Undeclarable",
    "estimate_matches",
    "estimate_sum",
    "form_of",
    "format_resume_cursor",
    "inspect_keys",
    "is_plain",
    "is_word",
    "looks_random",
    "looks_secret",
    "open_servers",
    "parse_resume_cursor",
    "parse_server_info",
    "read_info",
    "read_server_info",
    "survey",
]
