import { BoundedThread, OutOfBounds } from "../../infra/bounded-thread.ts";
import type { Terms } from "../../pipelines/record/bodies.ts";

/**
 * What the x402 project's own client, which runs in a worker thread, did with a 402. `place` is the index of the
 * offer that it chose, from 0.
 */
type ClientResult =
  | { did: "signed"; place: number }
  | { did: "signed_without_limits"; place: number; says: string }
  | { did: "refused" | "read_nothing"; says: string };

/** Whether the x402 project's own client, without any settings, would pay a 402. */
export interface StockVerdict {
  verdict: "signs" | "signs_without_spend_limits" | "refuses" | "cannot_be_told";
  /** Index of the offer that the client chose, from 0; null when it signed none. */
  offer: number | null;
  says: string;
}

/** A 402 as it was received. */
export interface Raw402 {
  headers: Record<string, string>;
  body: Uint8Array;
}

/**
 * Limits on the work for one 402. The client needs some ms of processor time to read and sign, and some hundred ms
 * for a megabyte of offers.
 */
const LIMITS = { cpuMs: 2_000, urgent: false };
/** Limit on the memory of the thread, MiB. */
const MEMORY = { maxOldGenerationSizeMb: 256 };
/** Largest number of 402s that may wait for the thread. */
const MAX_WAITING = 100;

/**
 * The thread that runs the client, started by the first call. A thread can be ended when the text of a stranger's 402
 * keeps the client busy.
 */
const thread = new BoundedThread(new URL("./stock-client-worker.mjs", import.meta.url), {
  does: "tries the protocol's own client",
  memory: MEMORY,
  maxWaiting: MAX_WAITING,
});

const toVerdict = (did: ClientResult): StockVerdict => {
  switch (did.did) {
    case "signed":
      return { verdict: "signs", offer: did.place, says: "It chooses this offer and signs it as it comes." };
    case "signed_without_limits":
      return {
        verdict: "signs_without_spend_limits",
        offer: did.place,
        says: `As it comes it refuses, and signs once its spending limits are lifted. It says: ${did.says}`,
      };
    case "refused":
      return { verdict: "refuses", offer: null, says: `It reads the terms but signs nothing. It says: ${did.says}` };
    case "read_nothing":
      return { verdict: "refuses", offer: null, says: `It finds no terms in this answer. It says: ${did.says}` };
  }
};

/** Returns why the client cannot judge these terms, or null. */
function whyNotTestable({ protocols, offers }: Terms): string | null {
  if (!protocols.includes("x402") && protocols.includes("mpp"))
    return "The 402 speaks mpp alone, which this client does not.";
  const networks = offers.map(({ network }) => network).filter(Boolean);
  if (networks.length > 0 && networks.every((network) => /^(?!eip155:)[a-z0-9-]+:/i.test(network)))
    return "All offers are on networks other than EVM ones; this client has the EVM scheme alone.";
  return null;
}

/**
 * Lets `@x402/core` with the `exact` scheme of `@x402/evm` read a 402, choose an offer and sign it. Its key holds no
 * money, its thread can be ended, and nothing is sent.
 * @throws Error when no thread can be started, which is our own fault
 */
export async function tryStockClient({ headers, body }: Raw402, terms: Terms): Promise<StockVerdict> {
  const whyNotTested = whyNotTestable(terms);
  if (whyNotTested !== null) return { verdict: "cannot_be_told", offer: null, says: whyNotTested };
  try {
    return toVerdict(await thread.ask<ClientResult>({ headers, body: Buffer.from(body).toString("utf8") }, LIMITS));
  } catch (error) {
    if (!(error instanceof OutOfBounds)) throw error;
    return { verdict: "refuses", offer: null, says: `It did not end within ${LIMITS.cpuMs} ms of processor time.` };
  }
}
