/** The same program's wallet: the types of the official client fit those of the library. */
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { buyThrough, guard, guardClient, guardedFetch, payBy, Service } from "touchstone-client";

const service = new Service({ base: "https://service.example" });
const mayPay = guard(service);
const wallet: x402Client = guardClient(new x402Client().registerPolicy(payBy("delivery")), mayPay);
export const below = wrapFetchWithPayment(guardedFetch(mayPay), wallet);
export const hooked: x402HTTPClient = guardClient(new x402HTTPClient(wallet), mayPay);
export const buy = (url: string) =>
  buyThrough(service, { url, cap: "0.03", pay: (fetch) => wrapFetchWithPayment(fetch, hooked) });
