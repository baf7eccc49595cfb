import { describe, expect, test } from "vitest";
import { paymentOf } from "../../../serving/buy/payments.ts";

const payload = {
  signature: `0x${"ab".repeat(65)}`,
  authorization: {
    from: `0x${"1".repeat(40)}`,
    to: `0x${"2".repeat(40)}`,
    value: "10000",
    validAfter: "0",
    validBefore: "1800000000",
    nonce: `0x${"3".repeat(64)}`,
  },
};
const inBase64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
const V1 = inBase64({ x402Version: 1, scheme: "exact", network: "base-sepolia", payload });
const V2 = inBase64({ x402Version: 2, accepted: { scheme: "exact", network: "eip155:84532" }, payload });
const both = (v1: string, v2: string): Headers => new Headers({ "x-payment": v1, "payment-signature": v2 });

describe("one payment in both headers", () => {
  test.each([
    ["version 1", V1, 1],
    ["version 2", V2, 2],
  ])("of %s is read by its own version", (_name, value, version) => {
    const payment = paymentOf(both(value, ` ${value}`));
    expect(payment).toMatchObject({ version, network: "eip155:84532", amountAtomic: 10_000n });
  });

  test("two different payments, or a value that is none, are refused", () => {
    expect(() => paymentOf(both(V1, V2))).toThrow("came beside another X-PAYMENT");
    for (const value of [inBase64({ x402Version: 3 }), inBase64(null), "%%%"])
      expect(() => paymentOf(both(value, value))).toThrow(/^PAYMENT-SIGNATURE/);
  });

  test("a payment in the other version's header alone is refused, as before", () => {
    expect(() => paymentOf(new Headers({ "payment-signature": V1 }))).toThrow("is no payment of x402 version 2");
    expect(() => paymentOf(new Headers({ "x-payment": V2 }))).toThrow("is no payment of x402 version 1");
  });
});
