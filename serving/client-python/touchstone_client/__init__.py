"""Checks a paid endpoint before your program pays it: verified answers of the service, and a guard for the wallet."""

from ._expect import expect_headers, judged_by
from ._guard import Checks, Concern, Decision, Guard, Policy, Reason, decide
from ._offers import Offer, offer_of
from ._service import Fetch, HttpAnswer, Service, ServiceFault
from ._verify import canonical, verify_card, verify_check
from ._x402 import guard_client

__version__ = "2026.11.1"

__all__ = [
    "Checks",
    "Concern",
    "Decision",
    "Fetch",
    "Guard",
    "HttpAnswer",
    "Offer",
    "Policy",
    "Reason",
    "Service",
    "ServiceFault",
    "__version__",
    "canonical",
    "decide",
    "expect_headers",
    "guard_client",
    "judged_by",
    "offer_of",
    "verify_card",
    "verify_check",
]
