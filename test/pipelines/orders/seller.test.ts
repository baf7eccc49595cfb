import { expect, test } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { NoWallet } from "../../../infra/rails/rails.ts";
import { intentOf, type SellerQuote, type SellerTools } from "../../../pipelines/orders/seller.ts";
import { entryV2 } from "../../infra/rails/harness.ts";

/** Nothing listens there. */
const NOWHERE = "http://127.0.0.1:1";
const entry = entryV2(10_000n);
const { network, asset } = entry;
const quote = { entry, cap: "cap_x", context: {}, priceMicro: 10_000n, want: {} } as unknown as SellerQuote;

/** The intent of a leg that is paid out of this float. */
const intent = (float: SellerTools["float"]) => {
  const rail = createEvmRail({ rpcUrl: NOWHERE, asset, network, confirmations: 1 });
  return intentOf({ float, rail: { ...rail, head: async () => ({ number: 1 }) } } as unknown as SellerTools, quote, 0);
};

test("an outside signer that is down is told apart from a float without money", async () => {
  const outside = { address: `0x${"a1".repeat(20)}`, signer: NOWHERE };
  expect(await intent(async () => outside)).toEqual({
    says: "The signer of our wallet did not sign the payment to this seller.",
  });
  const poor = async () => {
    throw new NoWallet("the known wallet has nothing left");
  };
  expect(await intent(poor)).toEqual({ says: "We have not enough money to pay this seller with now." });
});
