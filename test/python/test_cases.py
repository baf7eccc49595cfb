"""The Python client decides, reads and verifies as the client for JavaScript does: the same table of cases."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from touchstone_client import (
    Offer,
    Policy,
    ServiceFault,
    canonical,
    decide,
    expect_headers,
    judged_by,
    offer_of,
    verify_card,
    verify_check,
)
from touchstone_client._guard import Guard
from touchstone_client._service import capability_id, is_of_method

ROOT = Path(__file__).resolve().parents[2]
CASES: dict[str, Any] = json.loads((ROOT / "test/serving/client/shared-cases.golden.json").read_text("utf-8"))
NAMES = {"payTo": "pay_to", "validFor_s": "valid_for_s", "validUntil_s": "valid_until_s"}
POLICY = {"maxValidity_s": "max_validity_s"}


def offer(said: dict[str, Any]) -> Offer:
    members = {NAMES.get(name, name): value for name, value in said.items()}
    if members["amount"] is not None:
        members["amount"] = int(members["amount"])
    if "unread" in members:
        members["unread"] = tuple(members["unread"])
    return Offer(**members)


def policy(said: dict[str, Any]) -> Policy:
    return Policy(**{POLICY.get(name, re.sub("[A-Z]", lambda c: "_" + c[0].lower(), name)): value for name, value in said.items()})


def test_decisions() -> None:
    assert len(CASES["decisions"]) > 1000
    for case in CASES["decisions"]:
        done = decide(case["answer"], [offer(one) for one in case["offers"]], policy(case["policy"]), CASES["now_s"])
        found = [[one.reason, one.what, one.refuses] for one in done.concerns]
        mine = {"allow": done.allow, "outcome": done.outcome, "reason": done.reason, "concerns": found}
        assert mine == case["decision"], case


def test_a_price_may_rise_without_a_limit() -> None:
    case = next(one for one in CASES["decisions"] if one["decision"]["reason"] == "price" and one["policy"] == {})
    offers = [offer(one) for one in case["offers"]]
    assert decide(case["answer"], offers, Policy(price_rise=float("inf"))).reason != "price"


def test_entries() -> None:
    assert len(CASES["entries"]) > 100
    for case in CASES["entries"]:
        entry, expected = case["entry"], case["offer"]
        mine = offer_of(entry, case["form"])
        # Never more is read than the other client reads; on the networks that both know, the same.
        theirs = set(expected["unread"])
        assert theirs <= set(mine.unread or ()), case
        if mine.network and re.fullmatch("eip155:[1-9][0-9]*|solana:5[A-Za-z0-9]+", mine.network):
            assert set(mine.unread or ()) == theirs, case
        if not mine.unread:
            amount, pay_to = int(expected["amount"]), expected["payTo"]
            assert (mine.network, mine.asset, mine.amount, mine.pay_to) == (expected["network"], expected["asset"], amount, pay_to)
            assert (mine.scheme, mine.valid_for_s) == (expected["scheme"], expected["validFor_s"])


def test_methods() -> None:
    assert len(CASES["methods"]) > 40
    for case in CASES["methods"]:
        assert is_of_method(case["answer"], case["method"]) == case["is"], case


def test_ids() -> None:
    for case in CASES["ids"]:
        assert capability_id(case["method"], case["url"], case["tool"]) == case["id"]


@pytest.mark.parametrize("case", CASES["signatures"])
def test_signatures(case: dict[str, Any]) -> None:
    verify = verify_check if case["kind"] == "check" else verify_card
    assert verify(case["keys"], case["object"]) == case["reason"]


def test_canonical_form() -> None:
    folder = ROOT / "fixtures/vectors/rfc8785"
    names = sorted(path.name for path in (folder / "input").iterdir())
    assert len(names) > 4
    for name in names:
        text = (folder / "input" / name).read_text("utf-8")
        assert rfc8785.dumps(json.loads(text)) == (folder / "output" / name).read_bytes().rstrip(b"\n"), name


class Spy:
    """A service that answers of nobody, and what it was asked."""

    def __init__(self, fault: ServiceFault | None = None) -> None:
        self.asked: list[str | None] = []
        self.fault = fault

    def check(self, url: str, method: str | None = None, pay_to: str | None = None) -> dict[str, Any]:
        self.asked.append(pay_to)
        if self.fault:
            raise self.fault
        return {"band": "UNRATED", "why": "unknown", "defects": [], "answered_at": "2026-11-21T12:00:00.000Z"}


USDC = "0x036cbd53842c5426634e7929541ec2318f3dcf7e"


def at(payee: int, **more: Any) -> Offer:
    entry = {"scheme": "exact", "network": "eip155:84532", "asset": USDC, "amount": "1", "maxTimeoutSeconds": 60}
    return offer_of({**entry, "payTo": f"0x{str(payee) * 40}", **more})


def test_what_cannot_be_read_is_asked_of_nobody() -> None:
    spy = Spy()
    for more in ({"amount": "0x10"}, {"network": "stellar:pubnet"}, {"payTo": None}, {"maxTimeoutSeconds": 0}):
        done = Guard(spy, Policy(not_asked="pay", flags=(), defects=()))("https://a.example/", [at(1, **more)])
        assert (done.allow, done.reason) == (False, "unreadable_terms")
    assert spy.asked == []


def test_each_payee_is_asked_about() -> None:
    spy = Spy()
    guard = Guard(spy)
    assert guard("https://a.example/", [at(1), at(1), at(2)]).allow
    assert len(spy.asked) == 2
    assert guard("https://a.example/", [at(n) for n in range(1, 6)]).reason == "too_many_payees"
    assert guard("https://a.example/").allow


def test_what_happens_when_nobody_answers_is_the_policys() -> None:
    down = Spy(ServiceFault("unavailable", "down"))
    refused, paid = Guard(down)("https://a.example/"), Guard(down, Policy(not_asked="pay"))("https://a.example/")
    assert (refused.allow, refused.outcome, refused.fault) == (False, "not_asked", "unavailable")
    assert (paid.allow, paid.outcome, paid.reason) == (True, "not_asked", None)


@pytest.mark.parametrize("wrong", [{"at_least": "F"}, {"not_asked": "perhaps"}, {"price_rise": float("nan")}, {"max_validity_s": 0}, {"flags": "x"}])
def test_a_policy_that_says_nothing_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Policy(**wrong)


def test_expectations() -> None:
    assert expect_headers(regex="gr\u00fc\u00df", value=...) == {"Touchstone-Expect": '{"regex":"gr\\u00fc\\u00df"}'}
    # What a path selects may be null, which is not the same as anything.
    path = {"jsonpath": {"path": "$.a", "value": None}}
    assert json.loads(expect_headers(jsonpath="$.a", value=None)["Touchstone-Expect"]) == path
    assert json.loads(expect_headers(jsonpath="$.a")["Touchstone-Expect"]) == {"jsonpath": {"path": "$.a"}}
    with pytest.raises(ValueError, match="nothing"):
        expect_headers()
    with pytest.raises(ValueError, match="jsonpath"):
        expect_headers(value=1)
    with pytest.raises(ValueError, match="4096"):
        expect_headers(schema={"description": "x" * 4096})
    with pytest.raises(ValueError):
        expect_headers(jsonpath="$.a", value=float("nan"))
    assert judged_by({"touchstone-judged-by": "truth"}) == "truth"
    assert judged_by({}) is None
