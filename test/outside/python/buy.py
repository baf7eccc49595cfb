"""A buyer with the official x402 client: buys what argv[1] (JSON) names, and prints what came of it as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from eth_account import Account
from x402 import x402Client
from x402.http import decode_payment_response_header
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import ExactEvmScheme

asked: dict[str, Any] = json.loads(sys.argv[1])
init: dict[str, Any] = asked.get("init") or {}


async def main() -> dict[str, Any]:
    wallet = x402Client().register("eip155:*", ExactEvmScheme(Account.from_key(asked["key"])))
    async with x402HttpxClient(wallet, timeout=300) as http:
        answer = await http.request(
            init.get("method", "GET"), asked["url"], headers=init.get("headers"), content=init.get("body")
        )
    receipt = answer.headers.get("payment-response")
    settled = decode_payment_response_header(receipt).model_dump(by_alias=True) if receipt else None
    return {"status": answer.status_code, "text": answer.text, "settled": settled}


print(json.dumps(asyncio.run(main())))
