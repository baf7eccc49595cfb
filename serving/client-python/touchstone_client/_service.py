"""A client of the service. Every answer is bounded in size and time, and used only if its signature is valid."""

from __future__ import annotations

import hashlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import unquote, urlencode, urlsplit

from ._verify import canonical, parse_json, parse_time, verify

FaultCode = Literal[
    "timeout",
    "unreachable",
    "redirected",
    "too_large",
    "bad_answer",
    "limited",
    "unavailable",
    "problem",
    "bad_signature",
    "stale",
    "other_answer",
]

MAX_URL = 2048
CACHED_S = 60.0
MAX_CHECK_BYTES = 256 * 1024
MAX_SEARCH_BYTES = 4 * 1024 * 1024
KEYS_PATH = "/.well-known/svc-keys.json"
KEYS_HELD_S = 3600.0
KEYS_REREAD_S = 60.0
PAY_TO = re.compile(r"0x[0-9a-fA-F]{40}|[1-9A-HJ-NP-Za-km-z]{32,44}")
_LOOPBACK = re.compile(r"localhost|127(\.[0-9]{1,3}){3}|::1")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class ServiceFault(Exception):
    """There is no valid answer of the service. This is no judgement on a seller."""

    def __init__(self, code: FaultCode, says: str, status: int | None = None) -> None:
        super().__init__(f"{code}: {says}")
        self.code: FaultCode = code
        self.says = says
        self.status = status


@dataclass(frozen=True)
class HttpAnswer:
    status: int
    body: bytes


class Fetch(Protocol):
    """Sends one GET. It never follows a redirect, never pays, and reads at most ``max_bytes``. Raises ServiceFault."""

    def __call__(self, url: str, timeout_s: float, max_bytes: int) -> HttpAnswer: ...


def http_get(url: str, timeout_s: float, max_bytes: int) -> HttpAnswer:
    """:class:`Fetch` with the standard library. The time limit covers the whole exchange, name resolution included."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout_s)
    )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    came: list[HttpAnswer | BaseException] = []

    def work() -> None:
        try:
            connection.request("GET", target, headers={"accept": "application/json", "accept-encoding": "identity"})
            response = connection.getresponse()
            body = response.read(max_bytes + 1)
            if len(body) > max_bytes:
                raise ServiceFault("too_large", f"more than {max_bytes} bytes", response.status)
            came.append(HttpAnswer(response.status, body))
        except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
            came.append(error)
        finally:
            connection.close()

    worker = threading.Thread(target=work, daemon=True, name="touchstone-client")
    worker.start()
    worker.join(timeout_s)
    if worker.is_alive() or not came:
        # Ends the read of a peer that sends slowly, so that the thread ends too.
        if connection.sock is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        raise ServiceFault("timeout", "no complete answer within the time limit")
    result = came[0]
    if isinstance(result, HttpAnswer):
        return result
    if isinstance(result, ServiceFault):
        raise result
    if isinstance(result, TimeoutError):
        raise ServiceFault("timeout", "no complete answer within the time limit") from result
    raise ServiceFault("unreachable", str(result) or type(result).__name__) from result


def _base_of(text: str) -> str:
    parts = urlsplit(text)
    is_here = parts.scheme == "http" and _LOOPBACK.fullmatch(parts.hostname or "") is not None
    if not (parts.scheme == "https" and parts.hostname) and not is_here:
        raise ValueError(f"the address of the service must be https: {text}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(f"the address of the service must have no user, password, query or fragment: {text}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _url_to_ask(url: str) -> str:
    """Returns the url without user and password; without its query if it is too long, since origin and path match too."""
    if not re.fullmatch(r"https?://[^\x00-\x20\x7f\\]+", url):
        raise ServiceFault("problem", "not an http or https url, or one that parsers read differently")
    parts = urlsplit(url)
    netloc = parts.netloc.rpartition("@")[2]
    clean = parts._replace(netloc=netloc)
    return clean.geturl() if len(clean.geturl()) <= MAX_URL else clean._replace(query="").geturl()


def capability_id(method: str, url: str, tool: str = "") -> str:
    """Computes the id of an endpoint: 130 bits of sha256 over the RFC 8785 text of version, method, url and tool."""
    bits = int.from_bytes(hashlib.sha256(canonical(["1", method, url, tool])).digest(), "big") >> (256 - 130)
    return "cap_" + "".join(_ALPHABET[bits >> (5 * (25 - i)) & 31] for i in range(26))


def is_of_method(answer: Mapping[str, Any], method: str) -> bool:
    """Returns whether an answer is about that method. A signed answer about GET must not pass as one about POST."""
    matched, asked, url, cap = (answer.get(name) for name in ("matched", "asked", "url", "capabilityId"))
    if matched == "none":
        return answer.get("method") == method
    if cap == asked:
        return True
    if not isinstance(url, str) or not isinstance(cap, str):
        return False
    if cap == capability_id(method, url):
        return True
    if method != "POST":
        return False
    if cap == capability_id(method, url, unquote(urlsplit(str(asked)).fragment)):
        return True
    return cap not in [capability_id(other, url) for other in _METHODS]


def address_key(address: str) -> str:
    """Returns the form of an address in which addresses are compared."""
    return address.lower() if address[:2].lower() == "0x" else address


class Service:
    """
    A client of one service.

    :param base: address such as ``https://HOST``; plain http only on this machine. Raises ValueError for any other
    :param keys: the keys document, if it comes from a source that is trusted more than ``base``; then it is not fetched
    :param timeout_s: time limit of one exchange
    :param max_age_s: largest allowed difference between the clock here and the time of a signed answer
    """

    def __init__(
        self,
        base: str,
        *,
        keys: Mapping[str, Any] | None = None,
        fetch: Fetch = http_get,
        timeout_s: float = 2.0,
        max_age_s: float = 300.0,
        max_held: int = 500,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.base = _base_of(base)
        self.now = now
        self._fetch = fetch
        self._timeout_s = timeout_s
        self._max_age_s = max_age_s
        self._max_held = max_held
        self._pinned = keys
        self._keys: object = keys
        self._keys_at = float("-inf")
        self._tried_at = float("-inf")
        self._held: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def check(self, url: str, method: str | None = None, pay_to: str | None = None) -> dict[str, Any]:
        """
        Checks a url (GET /v1/check) and verifies the answer's signature. Answers are cached for a minute. Raises ServiceFault.

        :param pay_to: payTo of the 402 that is about to be paid
        """
        asked = _url_to_ask(url)
        query = {"url": asked, **({"method": method} if method else {}), **({"pay_to": pay_to} if pay_to else {})}
        name = urlencode(query)
        with self._lock:
            held = self._held.get(name)
        if held is not None and 0 <= self.now() - held[0] < CACHED_S:
            return held[1]
        at = self.now()
        answer = self._believed(self._json(f"/v1/check?{name}"))
        if not isinstance(answer.get("defects"), list) or not all(isinstance(answer.get(one), str) for one in ("band", "why")):
            raise ServiceFault("bad_answer", "the signed object is not a check answer")
        payee = answer.get("payee")
        address = cast("dict[str, object]", payee).get("address") if isinstance(payee, dict) else None
        is_about = pay_to is None or (isinstance(address, str) and address_key(address) == address_key(pay_to))
        if answer.get("asked") != asked or not is_about:
            raise ServiceFault("other_answer", f"the signed answer is about {str(answer.get('asked'))[:200]}")
        if method is not None and not is_of_method(answer, method):
            raise ServiceFault("other_answer", f"the signed answer is about another method than {method}")
        with self._lock:
            self._held.pop(name, None)
            while len(self._held) >= self._max_held:
                del self._held[next(iter(self._held))]
            self._held[name] = (at, answer)
        return answer

    def search(
        self,
        q: str,
        *,
        class_: str | None = None,
        band: str | None = None,
        max_price: str | None = None,
        network: str | None = None,
        order: Literal["best", "price", "letter", "latency"] | None = None,
        limit: int = 10,
    ) -> dict[str, Any]:
        """
        Searches paid endpoints by words (GET /v1/search), the best first. The answer is not signed: check the endpoint that you
        choose, or let the guard check it, before you pay. Raises ServiceFault.

        :param max_price: in USDC, such as ``0.05``
        """
        asked = {"class": class_, "band": band, "max_price": max_price, "network": network, "order": order, "limit": limit}
        query = urlencode({"q": q, **{name: value for name, value in asked.items() if value is not None}})
        answer = self._json(f"/v1/search?{query}", MAX_SEARCH_BYTES)
        if not isinstance(answer, dict) or not isinstance(cast("dict[str, object]", answer).get("capabilities"), list):
            raise ServiceFault("bad_answer", "the answer is not a search answer")
        return cast("dict[str, Any]", answer)

    def _json(self, path: str, max_bytes: int = MAX_CHECK_BYTES) -> object:
        answer = self._fetch(self.base + path, self._timeout_s, max_bytes)
        if 300 <= answer.status < 400:
            raise ServiceFault("redirected", f"the service answered with a redirect ({answer.status})", answer.status)
        try:
            body: object = parse_json(answer.body.decode("utf-8", "strict"))
        except ValueError:
            body = None
        if 200 <= answer.status < 300:
            if body is None:
                raise ServiceFault("bad_answer", "the answer is not JSON", answer.status)
            return body
        detail = cast("dict[str, object]", body).get("detail") if isinstance(body, dict) else None
        says = detail[:500] if isinstance(detail, str) else f"status {answer.status}"
        code: FaultCode = "limited" if answer.status == 429 else "unavailable" if answer.status >= 500 else "problem"
        raise ServiceFault(code, says, answer.status)

    def _believed(self, signed: object) -> dict[str, Any]:
        fault = verify(self._keys_now(), signed, "answers", "answered_at")
        if fault in ("unknown_key", "wrong_purpose", "not_yet_valid") and self._read_again():
            fault = verify(self._keys, signed, "answers", "answered_at")
        if fault is not None:
            raise ServiceFault("bad_signature", f"the signature of the answer is not valid: {fault}")
        answer = cast("dict[str, Any]", signed)
        at = parse_time(answer["answered_at"])
        age_s = abs(self.now() - at) if at is not None else float("inf")
        if age_s > self._max_age_s:
            raise ServiceFault("stale", f"the answer was signed at {answer['answered_at']}, {age_s:.0f} s from the time here")
        return answer

    def _keys_now(self) -> object:
        """Returns the keys. They are fetched on first use and once an hour; while a fetch fails, the last keys stay in use."""
        if self._pinned is not None or 0 <= self.now() - self._keys_at < KEYS_HELD_S:
            return self._keys
        if self._keys is None:
            self._read()
        else:
            self._read_again()
        return self._keys

    def _read_again(self) -> bool:
        """Fetches the keys again, at most once a minute, so that a stranger's unknown key ids cannot cause many requests."""
        if self._pinned is not None or 0 <= self.now() - self._tried_at < KEYS_REREAD_S:
            return False
        try:
            self._read()
        except ServiceFault:
            return False
        return True

    def _read(self) -> None:
        self._tried_at = self.now()
        keys = self._json(KEYS_PATH)
        if not isinstance(keys, dict) or not isinstance(cast("dict[str, object]", keys).get("keys"), list):
            raise ServiceFault("bad_answer", "the keys document holds no keys")
        self._keys, self._keys_at = cast("object", keys), self.now()
