"""Reads the keys document and the agent card of the service at argv[1] with PyJWT, a2a-sdk and rfc8785; prints JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from urllib.parse import urlsplit

import httpx
import jwt
import rfc8785
from a2a.client import A2ACardResolver
from a2a.utils.proto_utils import validate_proto_required_fields
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from jwt.utils import base64url_encode

base = sys.argv[1]


def keys_at(jku: str) -> jwt.PyJWKSet:
    """Keys of the document at that address, which is asked of this service."""
    return jwt.PyJWKSet.from_dict(httpx.get(base + urlsplit(jku).path).json())


async def main() -> dict[str, Any]:
    document = httpx.get(f"{base}/.well-known/svc-keys.json").json()
    keys = keys_at("/.well-known/svc-keys.json")
    verify = create_signature_verifier(lambda kid, jku: keys_at(jku or "")[kid or ""], ["EdDSA"])
    async with httpx.AsyncClient() as client:
        card = await A2ACardResolver(client, base).get_agent_card(signature_verifier=verify)
    validate_proto_required_fields(card)
    card.description += " and more"
    try:
        verify(card)
        changed = "verified"
    except InvalidSignaturesError:
        changed = "refused"

    served = httpx.get(f"{base}/.well-known/agent-card.json").json()
    [one] = served.pop("signatures")
    token = ".".join([one["protected"], base64url_encode(rfc8785.dumps(served)).decode(), one["signature"]])
    header = jwt.get_unverified_header(token)
    plain = jwt.decode(token, keys[header["kid"]], algorithms=["EdDSA"])
    return {
        "published": [key["kid"] for key in document["keys"]],
        "loaded": [key.key_id for key in keys.keys],
        "interfaces": [one.protocol_binding for one in card.supported_interfaces],
        "changed": changed,
        "plain": plain == served,
        "token": token,
    }


print(json.dumps(asyncio.run(main())))
