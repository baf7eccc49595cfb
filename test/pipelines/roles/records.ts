import type { NewRecord } from "../../../infra/log/log.ts";
import { capId, partitionOf } from "../../../pipelines/record/ids.ts";
import {
  CAME,
  capOf,
  correction,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  result,
  settlement,
  TERMS,
  urlOf,
} from "../2-ingest/records.ts";

export const PARTITIONS = 4;
const DAY = 86_400_000;

/** A seller whose capability lies in this partition: the n-th of a kind. */
export function sellerIn(partition: number, kind: string, n = 0): string {
  for (let i = 0, found = 0; ; i++) {
    const name = `${kind}${i}`;
    if (partitionOf(capId("GET", urlOf(name)), PARTITIONS) === partition && found++ === n) return name;
  }
}

/** The record in its place of a log of {@link PARTITIONS}. */
export const placed = (record: NewRecord): NewRecord => ({
  ...record,
  partition: partitionOf(record.key, PARTITIONS),
});

export interface Seller {
  name: string;
  payTo: string;
  /** Day from which on it keeps the money; never when null. */
  stealsFrom: number | null;
  /** Every so-manieth paid answer is wrong; none when 0. */
  wrongEvery: number;
}

/** In every partition a good one and a bad one; who shares a payee with a thief lies in another partition than it. */
export const SELLERS: readonly Seller[] = [0, 1, 2, 3].flatMap((partition): Seller[] => [
  { name: sellerIn(partition, "good"), payTo: `0x${partition}`, stealsFrom: null, wrongEvery: 0 },
  { name: sellerIn(partition, "wrong"), payTo: `0x${(partition + 1) % 4}`, stealsFrom: null, wrongEvery: 3 },
  ...(partition === 1 ? [{ name: sellerIn(1, "thief"), payTo: "0x3", stealsFrom: 4, wrongEvery: 0 }] : []),
]);

const terms = (payTo: string) => ({ ...TERMS, offers: [{ ...TERMS.offers[0]!, pay_to: payTo }] });

function paid({ name, payTo }: Seller, time: string, outcome: number | null, steals: boolean): NewRecord[] {
  const quote = { ...intentQuote, pay_to: payTo };
  const sent = intent(name, time, { input: "known_answer", quote });
  const [done, seen] = [later(time, 1_000), later(time, 2_000)];
  const again = {
    ...NOTHING,
    watched: true,
    ended: "closed" as const,
    fault: null,
    live: true,
    honest: true,
    wall: false,
  };
  return [
    sent,
    result(name, sent.eventId, done, steals ? NOTHING : { ...CAME, outcome }),
    settlement(name, sent.eventId, seen, { to: payTo }),
    ...(steals ? [followup(name, sent.eventId, later(time, 60_000), { kind: "shown_again", shown_again: again })] : []),
  ];
}
const intentQuote = {
  price: "0.020000",
  amount_atomic: "20000",
  asset: "0xasset",
  network: "eip155:8453",
  max_timeout_s: 60,
  x402_version: 1 as const,
};

/** What is observed of these sellers on day `n` after `start`, in its places. */
export function dayOf(start: string, n: number, sellers: readonly Seller[] = SELLERS): NewRecord[] {
  const midnight = later(start, n * DAY);
  const records = sellers.flatMap((seller, i) => {
    const { name, payTo, stealsFrom, wrongEvery } = seller;
    const steals = stealsFrom !== null && n >= stealsFrom;
    const outcome = wrongEvery > 0 && (n + i) % wrongEvery === 0 ? 0 : 1;
    const at = (hour: number) => later(midnight, hour * 3_600_000 + i * 60_000);
    return [
      ...(n === 0 ? [listing(name, at(0))] : []),
      ...[1, 9, 19].map((hour) => handshake(name, at(hour), { pay_to: payTo, terms: terms(payTo) })),
      ...paid(seller, at(3), outcome, steals),
      ...paid(seller, at(15), 1, steals),
    ];
  });
  return records.map(placed);
}

/** Everything of a seller before this moment is withdrawn. */
export const corrected = (name: string, time: string): NewRecord => placed(correction(name, time, { id: `c-${name}` }));

export { capOf };
