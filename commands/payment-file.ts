import { existsSync, readFileSync, rmSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { sha256hex } from "../infra/canonical.ts";
import { Failure } from "../infra/errors.ts";
import { createPrivateFile } from "../infra/keys/files.ts";
import type { PaidRequest } from "../serving/client/index.ts";

/**
 * File with a signed payment, which exists until the outcome of the purchase is known. If the payment is sent again,
 * the service finds the same order, so the buyer is charged at most once. The payment can pay only the service that
 * the file names, at most the agreed price.
 */
const PaymentFile = z.strictObject({
  schema: z.literal("touchstone.payment.v1"),
  /** Url or id of the endpoint, as the user gave it. */
  endpoint: z.string(),
  /** Address of the service. */
  service: z.string(),
  /** The wallet that pays: its address, and a description for people. */
  payer: z.object({ address: z.string(), says: z.string() }),
  /** File to which the answer is written; null: it is printed. */
  save: z.string().nullable(),
  /** The request with the payment in one of its headers. `body`: the request's body in base64, or null. */
  paid: z.strictObject({
    url: z.string(),
    method: z.string(),
    headers: z.array(z.tuple([z.string(), z.string()])),
    body: z.string().nullable(),
  }),
});
export type PaymentFile = z.infer<typeof PaymentFile>;

/** Names of the headers that hold a payment (x402 versions 2 and 1). */
const PAYMENT_HEADERS = ["payment-signature", "x-payment"];

/**
 * Returns the path of the payment file: beside the answer's file if that is given, else in the current folder, named
 * by the hash of the payment.
 */
const paymentFileName = (save: string | undefined, payment: string): string =>
  save === undefined ? `payment_${sha256hex(payment).slice(0, 16)}.json` : `${save}.payment.json`;

/** Returns the path of the payment file beside an answer's file, or null if it does not exist. */
export const existingPaymentFile = (save: string): string | null => {
  const file = paymentFileName(save, "");
  return existsSync(file) ? file : null;
};

/**
 * Returns a fetch that writes a request with a payment to a file (mode 0600, synced to disk) before it sends the
 * request. After a crash `touchstone resume` sends the request again from the file.
 * @param onSaved called with the path of the file
 * @throws Failure `already` if the file exists; then nothing is sent
 */
export const createSavingFetch =
  (
    fetch: typeof globalThis.fetch,
    purchase: Pick<PaymentFile, "endpoint" | "service" | "payer">,
    save: string | undefined,
    onSaved: (file: string) => void,
  ): typeof globalThis.fetch =>
  async (input, init) => {
    const request = new Request(input, init);
    const payment = PAYMENT_HEADERS.map((name) => request.headers.get(name)).find((value) => value !== null);
    if (payment === undefined || payment === null) return fetch(request);
    const body = request.body === null ? null : Buffer.from(await request.clone().arrayBuffer()).toString("base64");
    const { url, method, headers } = request;
    const paid = { url, method, headers: [...headers] as [string, string][], body };
    const file = paymentFileName(save, payment);
    const fileContent: PaymentFile = {
      ...{ schema: "touchstone.payment.v1", ...purchase, save: save === undefined ? null : resolve(save), paid },
    };
    try {
      createPrivateFile(file, `${JSON.stringify(fileContent, null, 2)}\n`);
    } catch (error) {
      if (!existsSync(file)) throw error;
      throw new Failure("already", `${file} holds a payment whose outcome is not known: touchstone resume ${file}`);
    }
    onSaved(file);
    return fetch(request);
  };

/** Reads a payment file. @throws Failure `unreadable` */
export function readPaymentFile(file: string): { payment: PaymentFile; paid: PaidRequest } {
  try {
    const payment = PaymentFile.parse(JSON.parse(readFileSync(file, "utf8")));
    const { body, ...request } = payment.paid;
    return { payment, paid: { ...request, body: body === null ? null : new Uint8Array(Buffer.from(body, "base64")) } };
  } catch (error) {
    throw new Failure("unreadable", `${file} is not a payment file: ${(error as Error).message.slice(0, 300)}`);
  }
}

/** Deletes the file of a payment whose outcome is known and saved. */
export const deletePaymentFile = (file: string): void => rmSync(file, { force: true });
