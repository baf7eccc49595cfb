"""Reads an entry of x402's ``accepts`` as a wallet would sign it. Members that wallets may read differently are unread."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, cast

from ._service import address_key

Member = Literal["entry", "scheme", "network", "asset", "amount", "payTo", "validity"]

#: Networks, tokens and the default policy, from the same source as the client for JavaScript.
TABLES: dict[str, Any] = json.loads(resources.files(__package__ or "touchstone_client").joinpath("tables.json").read_text("utf-8"))
_NAMES: dict[str, str] = TABLES["network_names"]
_USDC: dict[str, str] = TABLES["usdc"]
_DOLLARS: dict[str, list[str]] = TABLES["dollars"]

_EVM = re.compile(r"eip155:[1-9][0-9]{0,14}")
_SOLANA = re.compile(r"solana:[1-9A-HJ-NP-Za-km-z]{32,44}")
_HEX = re.compile(r"0x[0-9a-fA-F]{40}")
_NOBODYS = re.compile(r"0x0+|1{32}|0x(?:[eE]{2}){20}")
_DIGITS = re.compile(r"[0-9]{1,78}")
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@dataclass(frozen=True)
class Offer:
    """One way to pay. ``amount`` is in atomic units; ``unread`` names the members that wallets may read differently."""

    network: str | None
    asset: str | None
    amount: int | None
    pay_to: str | None
    scheme: str | None
    valid_for_s: int | None = None
    #: End of the validity, if the terms name a time instead of a duration: unix seconds.
    valid_until_s: float | None = None
    unread: tuple[Member, ...] | None = None


_UNREAD = Offer(None, None, None, None, None, unread=("entry",))


def _is_key(text: str) -> bool:
    """Returns whether a text is base58 of 32 bytes, as every account and mint of Solana is."""
    if not 32 <= len(text) <= 44 or any(char not in _BASE58 for char in text):
        return False
    number = 0
    for char in text:
        number = number * 58 + _BASE58.index(char)
    zeros = len(text) - len(text.lstrip("1"))
    return zeros + (number.bit_length() + 7) // 8 == 32


def _is_address(network: str, text: object) -> bool:
    if not isinstance(text, str) or _NOBODYS.fullmatch(text):
        return False
    return _HEX.fullmatch(text) is not None if network.startswith("eip155:") else _is_key(text)


def _amount(entry: Mapping[str, object], form: Literal[1, 2]) -> int | None:
    """Returns the amount, from either member; None for a JSON number, another notation, or two different amounts."""
    names = ("maxAmountRequired", "amount") if form == 1 else ("amount", "maxAmountRequired")
    said = [entry[name] for name in names if entry.get(name) is not None]
    if not said or not all(isinstance(one, str) and _DIGITS.fullmatch(one) for one in said):
        return None
    numbers = {int(cast("str", one)) for one in said}
    return numbers.pop() if len(numbers) == 1 else None


def _seconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not float(value).is_integer():
        return None
    return int(value) if 1 <= value <= 2**53 - 1 else None


def offer_of(entry: object, form: Literal[1, 2] = 2) -> Offer:
    """
    Reads an entry on an EVM chain or on Solana; on any other network it is unread.

    :param form: version of x402, which decides the names of the members that the wallet reads
    """
    if not isinstance(entry, dict) or "__proto__" in entry:
        return _UNREAD
    said = cast("dict[str, object]", entry)
    scheme, written, asset, pay_to = (said.get(name) for name in ("scheme", "network", "asset", "payTo"))
    network = _NAMES.get(written.lower(), written) if isinstance(written, str) else None
    is_evm = network is not None and _EVM.fullmatch(network) is not None
    is_known = is_evm or (network is not None and _SOLANA.fullmatch(network) is not None)
    amount, seconds = _amount(said, form), _seconds(said.get("maxTimeoutSeconds"))
    is_lasting = seconds is not None or (is_known and not is_evm and said.get("maxTimeoutSeconds") is None)
    is_scheme = isinstance(scheme, str) and re.fullmatch(r"[!-~]{1,60}", scheme) is not None
    place = network or ""
    reads: list[tuple[Member, bool]] = [
        ("scheme", is_scheme),
        ("network", is_known),
        ("amount", amount is not None),
        ("payTo", is_known and _is_address(place, pay_to)),
        ("asset", is_known and _is_address(place, asset)),
        ("validity", is_lasting),
    ]
    return Offer(
        network=network,
        asset=asset if isinstance(asset, str) else None,
        amount=amount,
        pay_to=pay_to if isinstance(pay_to, str) else None,
        scheme=scheme if is_scheme and isinstance(scheme, str) else None,
        valid_for_s=seconds,
        unread=tuple(member for member, is_read in reads if not is_read),
    )


def unread_in(offer: Offer) -> tuple[Member, ...]:
    """Returns the members of an offer that could not be read, so that nobody knows what would be signed."""
    if offer.unread is not None:
        return offer.unread
    known: list[tuple[Member, object]] = [
        ("network", offer.network),
        ("asset", offer.asset),
        ("amount", offer.amount),
        ("payTo", offer.pay_to),
    ]
    return tuple(member for member, value in known if value is None)


def is_whole_scheme(offer: Offer) -> bool:
    """Returns whether the offer holds everything that a wallet signs for its scheme."""
    if offer.scheme in ("exact", "upto"):
        return True
    on_chain = re.match(r"(?:eip155|evm|tempo|solana):", offer.network or "") is not None
    return on_chain and re.fullmatch(r"mpp:[a-z0-9:_-]+", offer.scheme or "") is not None


def network_key(network: str) -> str:
    """Shortens a Solana network, which may be written with its whole genesis hash or the first 32 characters of it."""
    return network[:39] if network.startswith("solana:") else network


def is_usdc(asset: str, networks: list[str]) -> bool:
    """Returns whether an asset is USDC on one of the networks. USDC has six decimals on every network of the table."""
    contracts = [_USDC.get(network_key(one)) for one in networks]
    return asset == "USDC" or any(one is not None and address_key(one) == address_key(asset) for one in contracts)


def is_dollar(asset: str, network: str) -> bool:
    """Returns whether an asset is USDC, or another dollar that the official client pays by default."""
    return is_usdc(asset, [network]) or address_key(asset) in _DOLLARS.get(network, [])
