"""A buyer with the official x402 client under the guard: pays one url, and prints what came of it as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from eth_account import Account
from touchstone_client import Decision, Guard, Policy, Service, guard_client
from x402 import x402Client, x402ClientSync
from x402.http import x402HTTPClient, x402HTTPClientSync
from x402.http.clients import x402HttpxClient, x402_requests
from x402.mechanisms.evm.exact import ExactEvmScheme

asked: dict[str, Any] = json.loads(sys.argv[1])
said: dict[str, Any] = {"status": None, "error": None, "signed": [], "decision": None, "at": None}


def keep(decision: Decision, url: str) -> None:
    said.update(decision=[decision.allow, decision.outcome, decision.reason], at=url)


def signed(context: Any) -> None:
    said["signed"].append(context.payment_payload.payload["authorization"])


class Broken:
    def check(self, *_: object) -> dict[str, Any]:
        raise RuntimeError("a fault of our own")


service: Any = Broken() if asked.get("broken") else Service(asked["base"], timeout_s=60)
guard = Guard(service, Policy(**asked.get("policy", {})))
scheme = ExactEvmScheme(Account.from_key(asked["key"]))


async def pay() -> int:
    wallet = x402Client().register("eip155:*", scheme).on_after_payment_creation(signed)
    client = wallet if asked.get("bare") else x402HTTPClient(wallet)
    async with x402HttpxClient(guard_client(client, guard, on_decision=keep), timeout=300) as http:
        return (await http.get(asked["url"])).status_code


def pay_sync() -> int:
    wallet = x402ClientSync().register("eip155:*", scheme).on_after_payment_creation(signed)
    with x402_requests(guard_client(x402HTTPClientSync(wallet), guard, on_decision=keep)) as http:
        return http.get(asked["url"]).status_code


try:
    said["status"] = pay_sync() if asked.get("sync") else asyncio.run(pay())
except Exception as error:
    said["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
