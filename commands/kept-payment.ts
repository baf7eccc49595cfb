import { existsSync, readFileSync, rmSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { sha256hex } from "../infra/canonical.ts";
import { Failure } from "../infra/errors.ts";
import { createPrivate } from "../infra/keys/files.ts";
import type { PaidRequest } from "../serving/client/index.ts";

/**
 * A signed payment as it lies beside its order until the outcome is known: whoever sends it again asks for the same order, and
 * pays once. It pays the service that it names, and at most what was agreed to.
 */
const KeptPayment = z.strictObject({
  schema: z.literal("touchstone.payment.v1"),
  /** What was bought, as it was asked for. */
  endpoint: z.string(),
  /** Address of the service. */
  service: z.string(),
  payer: z.object({ address: z.string(), says: z.string() }),
  /** File that the answer goes to; null: it is printed. */
  save: z.string().nullable(),
  /** The request with its payment, as it is sent; the body in base64. */
  paid: z.strictObject({
    url: z.string(),
    method: z.string(),
    headers: z.array(z.tuple([z.string(), z.string()])),
    body: z.string().nullable(),
  }),
});
export type KeptPayment = z.infer<typeof KeptPayment>;

/** Headers that carry a payment. */
const CARRY = ["payment-signature", "x-payment"];

/** Name of the file: beside the answer's, or by the payment in the current folder. */
const fileOf = (save: string | undefined, payment: string): string =>
  save === undefined ? `payment_${sha256hex(payment).slice(0, 16)}.json` : `${save}.payment.json`;

/** The file where a payment would be kept already, if there is one. */
export const keptBeside = (save: string): string | null => {
  const file = fileOf(save, "");
  return existsSync(file) ? file : null;
};

/**
 * A fetch that writes a request with a payment into a file (mode 0600, durable) before it sends it: a crash afterwards leaves
 * what is needed to ask again.
 * @param kept told of the file
 * @throws Failure `already` where the file is there, and then nothing is sent
 */
export const keepingPayments =
  (
    fetch: typeof globalThis.fetch,
    of: Pick<KeptPayment, "endpoint" | "service" | "payer">,
    save: string | undefined,
    kept: (file: string) => void,
  ): typeof globalThis.fetch =>
  async (input, init) => {
    const request = new Request(input, init);
    const payment = CARRY.map((name) => request.headers.get(name)).find((value) => value !== null);
    if (payment === undefined || payment === null) return fetch(request);
    const body = request.body === null ? null : Buffer.from(await request.clone().arrayBuffer()).toString("base64");
    const { url, method, headers } = request;
    const paid = { url, method, headers: [...headers] as [string, string][], body };
    const file = fileOf(save, payment);
    const whole: KeptPayment = {
      ...{ schema: "touchstone.payment.v1", ...of, save: save === undefined ? null : resolve(save), paid },
    };
    try {
      createPrivate(file, `${JSON.stringify(whole, null, 2)}\n`);
    } catch (error) {
      if (!existsSync(file)) throw error;
      throw new Failure("already", `${file} holds a payment whose outcome is not known: touchstone resume ${file}`);
    }
    kept(file);
    return fetch(request);
  };

/** Reads a payment that was kept. @throws Failure `unreadable` */
export function readKept(file: string): { kept: KeptPayment; paid: PaidRequest } {
  try {
    const kept = KeptPayment.parse(JSON.parse(readFileSync(file, "utf8")));
    const { body, ...request } = kept.paid;
    return { kept, paid: { ...request, body: body === null ? null : new Uint8Array(Buffer.from(body, "base64")) } };
  } catch (error) {
    throw new Failure("unreadable", `${file} is no payment that was kept: ${(error as Error).message.slice(0, 300)}`);
  }
}

/** Removes a payment whose outcome is known and kept. */
export const forgetPayment = (file: string): void => rmSync(file, { force: true });
