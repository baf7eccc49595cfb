// A buyer with the official client of x402 version 1: buys what argv[2] (JSON) names, and prints what came of it as JSON.
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { decodeXPaymentResponse, wrapFetchWithPayment } from "x402-fetch";

const { key, rpc, url, init } = JSON.parse(process.argv[2]);
const account = privateKeyToAccount(key);
const wallet = createWalletClient({ account, transport: http(rpc), chain: baseSepolia });
const answer = await wrapFetchWithPayment(fetch, wallet)(url, init);
const receipt = answer.headers.get("x-payment-response");
const settled = receipt === null ? null : decodeXPaymentResponse(receipt);
console.log(JSON.stringify({ status: answer.status, text: await answer.text(), settled }));
