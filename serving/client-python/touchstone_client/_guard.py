"""Decides whether a payment may be signed, by the rules of the client for JavaScript. A shared table of cases tests both."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from ._offers import TABLES, Offer, is_dollar, is_usdc, is_whole_scheme, network_key, unread_in
from ._service import PAY_TO, FaultCode, ServiceFault, address_key
from ._verify import parse_time

Reason = Literal[
    "failing",
    "below_minimum",
    "unrated",
    "flag",
    "defect",
    "price",
    "network",
    "asset",
    "scheme",
    "validity",
    "unreadable_terms",
    "too_many_payees",
    "not_asked",
]
Word = Literal["pay", "refuse"]
_USUAL: dict[str, Any] = TABLES["policy"]
_LETTERS = "ABCDF"
MAX_PAYEES = 4


@dataclass(frozen=True)
class Policy:
    """What a buyer refuses to pay. Raises ValueError for invalid values."""

    #: The lowest letter that is paid; F never is.
    at_least: Literal["A", "B", "C", "D"] = _USUAL["atLeast"]
    #: UNRATED means unknown, not bad.
    unrated: Word = _USUAL["unrated"]
    #: What to do when the service could not be asked, or its answer is not valid.
    not_asked: Word = _USUAL["notAsked"]
    flags: Sequence[str] = field(default=tuple(_USUAL["flags"]))
    defects: Sequence[str] = field(default=tuple(_USUAL["defects"]))
    #: Largest ratio of a payment to the price in the newest 402; infinity: no limit.
    price_rise: float = _USUAL["priceRise"]
    other_network: Word = _USUAL["otherNetwork"]
    other_asset: Word = _USUAL["otherAsset"]
    other_scheme: Word = _USUAL["otherScheme"]
    #: Longest validity of a signature, seconds.
    max_validity_s: float = _USUAL["maxValidity_s"]

    def __post_init__(self) -> None:
        words = (self.unrated, self.not_asked, self.other_network, self.other_asset, self.other_scheme)
        if any(word not in ("pay", "refuse") for word in words):
            raise ValueError('a policy says "pay" or "refuse"')
        if self.at_least not in ("A", "B", "C", "D"):
            raise ValueError("at_least is A, B, C or D")
        if not self.price_rise >= 1 or not self.max_validity_s >= 1:
            raise ValueError("price_rise and max_validity_s are 1 or more")
        if isinstance(self.flags, str) or isinstance(self.defects, str):
            raise ValueError("flags and defects are lists")


@dataclass(frozen=True)
class Concern:
    """A reason against a payment, or something about it that could not be checked."""

    reason: Reason
    what: str
    says: str
    refuses: bool


@dataclass(frozen=True)
class Decision:
    """``refused`` is a judgement on the seller. ``not_asked`` is none: then ``allow`` follows the policy's ``not_asked``."""

    allow: bool
    outcome: Literal["allowed", "refused", "not_asked"]
    #: Reason of the first concern that refuses the payment; None if none does.
    reason: Reason | None
    says: str
    concerns: tuple[Concern, ...]
    #: The signed answer, to be stored with the payment; None if there is none.
    answer: Mapping[str, Any] | None = None
    #: Why there is no valid answer of the service; None if there is one, or if it was not asked.
    fault: FaultCode | None = None


class Checks(Protocol):
    """The part of :class:`Service` that a guard needs."""

    def check(self, url: str, method: str | None = None, pay_to: str | None = None) -> Mapping[str, Any]: ...


def _flags(answer: Mapping[str, Any]) -> list[str]:
    return cast("list[str] | None", answer.get("flags")) or []


def _of_flags(answer: Mapping[str, Any], policy: Policy) -> Iterator[Concern]:
    for flag in _flags(answer):
        yield Concern("flag", flag, f"{flag}: {answer['why']}", flag in policy.flags)


def _of_band(answer: Mapping[str, Any], policy: Policy) -> Iterator[Concern]:
    band, why = str(answer["band"]), str(answer["why"])
    if band == "UNRATED":
        yield Concern("unrated", band, why, policy.unrated == "refuse")
    elif band == "F":
        yield Concern("failing", band, why, True)
    elif band not in tuple(_LETTERS) or _LETTERS.index(band) > _LETTERS.index(policy.at_least):
        yield Concern("below_minimum", band, why, True)


def _of_defects(answer: Mapping[str, Any], policy: Policy) -> Iterator[Concern]:
    for one in answer["defects"]:
        yield Concern("defect", one["defect"], f"{one['defect']}: {one['says']}", one["defect"] in policy.defects)


def _micro(money: object) -> int | None:
    found = re.fullmatch(r"([0-9]{1,30})\.([0-9]{1,6})", money) if isinstance(money, str) else None
    return int(found[1]) * 1_000_000 + int(found[2].ljust(6, "0")) if found else None


def _same_asset(asset: str, network: str | None, advertised: Mapping[str, Any]) -> bool:
    named = str(advertised["asset"])
    if address_key(asset) == address_key(named):
        return True
    return network is not None and is_usdc(asset, [network]) and is_usdc(named, list(advertised["networks"]))


def _of_offer(answer: Mapping[str, Any], offer: Offer, policy: Policy, now_s: float) -> Iterator[Concern]:
    observed = cast("Mapping[str, Any] | None", answer.get("observed"))
    advertised = cast("Mapping[str, Any] | None", observed.get("advertised")) if observed else None
    network, asset, amount, scheme = offer.network, offer.asset, offer.amount, offer.scheme
    if scheme is not None and not is_whole_scheme(offer):
        says = f"a signature for {scheme} covers more than network, asset, amount, payee and time"
        yield Concern("scheme", scheme, says, policy.other_scheme == "refuse")
    named = [str(one) for one in advertised["networks"]] if advertised else []
    if network is not None and named and network_key(network) not in [network_key(one) for one in named]:
        says = f"the payment is on {network}; the newest 402 names {', '.join(named[:8])}"
        yield Concern("network", network, says, policy.other_network == "refuse")
    if asset is not None:
        is_same = _same_asset(asset, network, advertised) if advertised else network is not None and is_dollar(asset, network)
        if not is_same:
            says = f"the payment is in {asset}; {'the newest 402 names ' + str(advertised['asset']) if advertised else 'which is no known dollar token there'}"
            yield Concern("asset", asset, says, policy.other_asset == "refuse")
    seconds = (offer.valid_for_s or 0) if offer.valid_until_s is None else math.ceil(offer.valid_until_s - now_s)
    if seconds > policy.max_validity_s:
        says = f"the signature would be valid for {seconds} s; at most {policy.max_validity_s} s are allowed"
        yield Concern("validity", str(seconds), says, True)
    is_dynamic = "dynamic_price" in _flags(answer)
    if advertised and amount is not None and asset is not None and not is_dynamic and _same_asset(asset, network, advertised):
        was = _micro(advertised["amount"])
        if was is not None and amount > was:
            says = f"the payment is {amount} millionths; the newest 402 asked {advertised['amount']}"
            permille = policy.price_rise * 1000 + 0.5
            refuses = math.isfinite(permille) and amount * 1000 > was * math.floor(permille)
            yield Concern("price", str(amount), says, refuses)


def decide(
    answer: Mapping[str, Any], offers: Sequence[Offer], policy: Policy | None = None, now_s: float | None = None
) -> Decision:
    """
    Decides by a policy on an answer and the offers of a demand. A pure function.

    :param now_s: time at which the payment would be signed, unix seconds; default: the time of the answer
    """
    rules, at = policy or Policy(), now_s if now_s is not None else parse_time(answer.get("answered_at")) or 0.0
    concerns = [*_of_flags(answer, rules), *_of_band(answer, rules), *_of_defects(answer, rules)]
    for offer in offers:
        concerns.extend(_of_offer(answer, offer, rules, at))
    refusing = next((one for one in concerns if one.refuses), None)
    if refusing is not None:
        return Decision(False, "refused", refusing.reason, refusing.says, tuple(concerns), answer)
    return Decision(True, "allowed", None, str(answer["why"]), tuple(concerns), answer)


def unreadable(why: str) -> Decision:
    """Returns a refusal of terms that cannot be read."""
    says = f"payee and amount of the payment are not known: {why}"
    return Decision(False, "refused", "unreadable_terms", says, (Concern("unreadable_terms", why, says, True),))


def _too_many(count: int) -> Decision:
    says = f"the 402 names {count} payout addresses, more than the {MAX_PAYEES} that are checked"
    return Decision(False, "refused", "too_many_payees", says, (Concern("too_many_payees", str(count), says, True),))


class Guard:
    """Asks the service before each payment, and decides. Terms that it cannot read are refused without asking."""

    def __init__(self, service: Checks, policy: Policy | None = None, now: Callable[[], float] = time.time) -> None:
        self._service = service
        self._policy = policy or Policy()
        self._now = now

    def __call__(self, url: str, offers: Sequence[Offer] = (), method: str | None = None) -> Decision:
        """:param url: url to which the request was sent, not the url that the 402 names"""
        for offer in offers:
            if unread_in(offer):
                return unreadable(f"an offer has members that cannot be read: {', '.join(unread_in(offer))}")
        payees: dict[str, tuple[str | None, list[Offer]]] = {}
        for offer in offers:
            pay_to = offer.pay_to if offer.pay_to is not None and PAY_TO.fullmatch(offer.pay_to) else None
            payees.setdefault(address_key(pay_to or ""), (pay_to, []))[1].append(offer)
        if len(payees) > MAX_PAYEES:
            return _too_many(len(payees))
        asked = method.upper() if method is not None and method.upper() in ("GET", "POST") else None
        decisions = [self._ask(url, asked, pay_to, group) for pay_to, group in payees.values() or [(None, [])]]
        for outcome in ("refused", "not_asked"):
            for decision in decisions:
                if decision.outcome == outcome:
                    return decision
        return decisions[0]

    def _ask(self, url: str, method: str | None, pay_to: str | None, offers: Sequence[Offer]) -> Decision:
        try:
            answer = self._service.check(url, method, pay_to)
        except ServiceFault as fault:
            says, refuses = f"not checked ({fault.code}): {fault.says}", self._policy.not_asked == "refuse"
            concern = Concern("not_asked", fault.code, says, refuses)
            return Decision(not refuses, "not_asked", "not_asked" if refuses else None, says, (concern,), None, fault.code)
        return decide(answer, offers, self._policy, self._now())
