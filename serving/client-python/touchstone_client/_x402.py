"""Adds the guard to the official ``x402`` client, in the hook before signing, when the offer is chosen."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from ._guard import Decision, Guard, unreadable
from ._offers import Offer, offer_of

Client = TypeVar("Client")
OnDecision = Callable[[Decision, str], None]

#: Most demands that are remembered between their 402 and their payment. The oldest are forgotten, and then refused.
_MAX_UNDER_WAY = 1000
#: Extensions for which this client signs an allowance beside the payment.
_ALLOWANCES = ("eip2612GasSponsoring", "erc20ApprovalGasSponsoring")


def _offer(demanded: Any, selected: Any) -> Offer:
    """Returns the chosen offer, read from the object that the client signs."""
    form = 1 if demanded.x402_version == 1 else 2
    entry: dict[str, object] = selected.model_dump(by_alias=True)
    offer = offer_of(entry, 1 if form == 1 else 2)
    extra = cast("Mapping[str, object] | None", selected.extra)
    is_permit = extra is not None and extra.get("assetTransferMethod") == "permit2"
    if is_permit and any(name in (getattr(demanded, "extensions", None) or {}) for name in _ALLOWANCES):
        return replace(offer, scheme=f"{offer.scheme} with an allowance")
    return offer


def _claimed(demanded: Any, selected: Any) -> str | None:
    """Returns the url that the seller wrote into its 402; None if there is none."""
    resource = getattr(demanded, "resource", None)
    url = getattr(resource, "url", None) or getattr(selected, "resource", None)
    return url if isinstance(url, str) and url else None


def guard_client(
    client: Client,
    guard: Guard,
    *,
    url: str | None = None,
    method: str | None = None,
    on_decision: OnDecision | None = None,
) -> Client:
    """
    Adds a guard to ``x402Client``, ``x402ClientSync``, or better ``x402HTTPClient(Sync)``, which knows the url that
    answered 402: the other clients know only the url that the 402 names, which the seller wrote. After a refusal the client
    raises ``PaymentAbortedError``, and nothing is signed.

    :param url: url of the request, if it is known
    :param on_decision: called with every decision; use it to store the signed answer
    :return: the client, for chaining
    """
    from x402.schemas import AbortResult

    over: Any = client
    is_http = hasattr(over, "on_payment_required")
    inner: Any = over._client if is_http else over
    under_way: dict[int, tuple[Any, str]] = {}

    def note(context: Any) -> None:
        while len(under_way) >= _MAX_UNDER_WAY:
            del under_way[next(iter(under_way))]
        demanded = context.payment_required
        under_way[id(demanded)] = (demanded, str(context.request_url))

    def prepared(context: Any) -> tuple[str | None, Offer]:
        demanded, selected = context.payment_required, context.selected_requirements
        known = under_way.get(id(demanded), (None, None))[1]
        return url or (known if is_http else _claimed(demanded, selected)), _offer(demanded, selected)

    def ended(decision: Decision, at: str) -> Any:
        if on_decision is not None:
            on_decision(decision, at)
        return None if decision.allow else AbortResult(reason=decision.says)

    def judged(at: str | None, offer: Offer) -> Decision:
        return guard(at, [offer], method) if at else unreadable("neither the client nor the 402 names the url")

    async def hook(context: Any) -> Any:
        at, offer = prepared(context)
        return ended(await asyncio.to_thread(judged, at, offer), at or "")

    def hook_sync(context: Any) -> Any:
        at, offer = prepared(context)
        return ended(judged(at, offer), at or "")

    if is_http:
        over.on_payment_required(note)
    inner.on_before_payment_creation(hook if inspect.iscoroutinefunction(inner.create_payment_payload) else hook_sync)
    return client
