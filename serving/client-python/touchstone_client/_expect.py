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
    Header of a bought call (``/v1/via/{id}``), to be sent with the request for the price and with the payment alike. Each
    member must hold, beside the service's own check, else nothing is charged. Raises ValueError.

    :param jsonpath: path (RFC 9535) that selects something in the answer, and nothing but ``value``, if that is given
    :param regex: expression of RE2 that is found somewhere in the answer's text
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
    What judged an answer that was bought: ``truth``, ``schema``, ``class``, ``parses`` or ``status``. None where nothing was
    delivered, or the service does not say.

    :param headers: of the response, in whatever case
    """
    found = [value for name, value in headers.items() if name.lower() == "touchstone-judged-by"]
    return found[0] if found else None
