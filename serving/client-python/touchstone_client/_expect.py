"""What a buyer itself expects of an answer that it buys through the service."""

from __future__ import annotations

import json
from collections.abc import Mapping

EXPECT_HEADER = "Touchstone-Expect"
MAX_EXPECTATION = 4096


def expect_headers(
    *,
    schema: Mapping[str, object] | None = None,
    jsonpath: str | None = None,
    value: object = ...,
    regex: str | None = None,
    min_length: int | None = None,
) -> dict[str, str]:
    """
    Returns the header of a bought call (``/v1/via/{id}``). Send it with the request for the price and with the payment. Each
    member must be met in addition to the service's own check, else nothing is charged. Raises ValueError.

    :param jsonpath: path (RFC 9535) that must select a value in the answer; all selected values must equal ``value``, if given
    :param regex: regular expression (RE2) that must match somewhere in the answer's text
    :param min_length: least length of the answer, bytes
    """
    if jsonpath is None and value is not ...:
        raise ValueError("value is what a jsonpath selects")
    path = None if jsonpath is None else {"path": jsonpath, **({} if value is ... else {"value": value})}
    members = {"schema": schema, "jsonpath": path, "regex": regex, "min_length": min_length}
    given = {name: member for name, member in members.items() if member is not None}
    if not given:
        raise ValueError("nothing is expected")
    text = json.dumps(given, separators=(",", ":"), allow_nan=False)
    if len(text) > MAX_EXPECTATION:
        raise ValueError(f"more than {MAX_EXPECTATION} characters")
    return {EXPECT_HEADER: text}


def judged_by(headers: Mapping[str, str]) -> str | None:
    """
    Returns the check that judged a bought answer: ``truth``, ``schema``, ``class``, ``parses`` or ``status``. None if nothing
    was delivered, or the service did not report it.

    :param headers: headers of the response; the case of their names does not matter
    """
    found = [value for name, value in headers.items() if name.lower() == "touchstone-judged-by"]
    return found[0] if found else None
