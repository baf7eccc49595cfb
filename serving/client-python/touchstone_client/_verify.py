"""Verifies signatures of the service: Ed25519 over the RFC 8785 form of an object, by its published keys."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, cast

import rfc8785
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Purpose = Literal["cards", "answers"]
Fault = Literal[
    "malformed",
    "canonicalization",
    "unknown_key",
    "wrong_purpose",
    "bad_key",
    "not_yet_valid",
    "retired",
    "bad_signature",
]

MAX_DEPTH = 64
MAX_INTEGER = 2**53 - 1
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_json(text: str | bytes) -> Any:
    """Parses JSON (RFC 8259). Raises ValueError for any other text, also for NaN and Infinity."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def parse_time(text: object) -> float | None:
    """Returns the unix seconds of an RFC 3339 time; None for any other value."""
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    try:
        whole = datetime(*(int(part) for part in found.groups()[:6]), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
    except ValueError:
        return None
    zone = found[8]
    away = timedelta() if zone == "Z" else timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
    moment = whole + away if zone[0] == "-" else whole - away
    return moment.timestamp() + float(f"0.{found[7] or 0}")


def _check(value: object, depth: int) -> None:
    """Raises ValueError for a value that is nested too deep, and for an integer that two different texts could mean."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        if abs(value) > MAX_INTEGER and float(value).is_integer():
            raise ValueError("an integer past 2^53 - 1")
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            _check(one, depth + 1)
    elif isinstance(value, dict):
        for one in cast("dict[object, object]", value).values():
            _check(one, depth + 1)
    else:
        raise ValueError(f"{type(value).__name__} has no JSON form")


def canonical(value: Any) -> bytes:
    """Returns the RFC 8785 bytes of a value. Raises ValueError if it has none, and for integers above 2^53 - 1."""
    try:
        _check(value, 0)
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, OverflowError, TypeError) as error:
        raise ValueError(str(error)) from error


def from_base64url(text: object) -> bytes | None:
    """Decodes base64url without padding; None for a text that is not the one encoding of its bytes."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        return None
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text else None


def thumbprint(x: str) -> str:
    """Returns the RFC 7638 key id of an Ed25519 public key."""
    text = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


# The part of the curve's arithmetic that finds points on which verifiers of Ed25519 disagree (RFC 8032 section 5.1).
_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_Point = tuple[int, int, int, int]
_ZERO: _Point = (0, 1, 1, 0)


def _decode(data: bytes) -> _Point | None:
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    if len(data) != 32 or y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P != 0:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if (x * x - square) % _P != 0 or (x == 0 and sign == 1):
        return None
    x = _P - x if x & 1 != sign else x
    return (x, y, 1, x * y % _P)


def _add(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _is_zero(point: _Point) -> bool:
    return point[0] % _P == 0 and (point[1] - point[2]) % _P == 0


def _is_torsion_free(data: bytes) -> bool:
    """Returns whether these bytes are the one encoding of a point in the group of prime order."""
    point = _decode(data)
    if point is None:
        return False
    total, scalar = _ZERO, _ORDER
    while scalar:
        if scalar & 1:
            total = _add(total, point)
        point, scalar = _add(point, point), scalar >> 1
    return _is_zero(total)


def _holds(key: bytes, data: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return _is_torsion_free(signature[:32])


def _key(jwks: object, kid: str, purpose: Purpose, at: float) -> tuple[bytes, str] | Fault:
    keys = cast("dict[str, object]", jwks).get("keys") if isinstance(jwks, dict) else None
    listed = cast("list[object]", keys) if isinstance(keys, list) else []
    named = [one for one in (cast("dict[str, object]", key) for key in listed if isinstance(key, dict)) if one.get("kid") == kid]
    if not named:
        return "unknown_key"
    key = next((one for one in named if one.get("purpose") == purpose), None)
    if key is None:
        return "wrong_purpose"
    x, public = key.get("x"), from_base64url(key.get("x"))
    since = parse_time(key.get("valid_from"))
    until = parse_time(key["retired_at"]) if "retired_at" in key else float("inf")
    is_key = key.get("kty") == "OKP" and key.get("crv") == "Ed25519" and public is not None and len(public) == 32
    if not is_key or public is None or not isinstance(x, str) or since is None or until is None:
        return "bad_key"
    if at < since:
        return "not_yet_valid"
    if at >= until:
        return "retired"
    return public, x


def verify(jwks: object, signed: object, purpose: Purpose, member: str) -> Fault | None:
    """
    Returns None if the signature is valid, else the fault. It raises for no input, and does not check the age.

    :param jwks: the keys document
    :param member: the member that has the time of signing
    """
    if not isinstance(signed, dict):
        return "malformed"
    fields = dict(cast("Mapping[str, object]", signed))
    signature, kid = from_base64url(fields.pop("signature", None)), fields.get("signing_key_id")
    at = parse_time(fields.get(member))
    if signature is None or len(signature) != 64 or not isinstance(kid, str) or at is None:
        return "malformed"
    if fields.get("canonicalization") != "RFC8785":
        return "canonicalization"
    found = _key(jwks, kid, purpose, at)
    if isinstance(found, str):
        return found
    try:
        data = canonical(fields)
    except ValueError:
        return "canonicalization"
    public, x = found
    point = _decode(public)
    if thumbprint(x) != kid or point is None or _is_zero(point) or not _is_torsion_free(public):
        return "bad_key"
    return None if _holds(public, data, signature) else "bad_signature"


def verify_check(jwks: object, answer: object) -> Fault | None:
    """Returns None if a check answer or an exposure report was signed by an answers key, else the fault."""
    return verify(jwks, answer, "answers", "answered_at")


def verify_card(jwks: object, card: object) -> Fault | None:
    """Like :func:`verify_check`, for a card and the cards key. The card is an object, or the text of ``scorecard``."""
    if isinstance(card, str):
        try:
            card = parse_json(card)
        except ValueError:
            return "malformed"
    return verify(jwks, card, "cards", "computed_at")
