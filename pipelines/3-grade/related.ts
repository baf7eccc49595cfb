import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { addressKey } from "../record/networks.ts";

/**
 * An endpoint that, in the window of days that is graded, took money at least once and gave no answer for it; with its
 * payee and registrable domain.
 */
export interface NonDeliveringSeller {
  cap: string;
  pay_to: string | null;
  domain: string | null;
}

/**
 * Did other endpoints with the same payee, or with the same registrable domain, take money? These are flags of a card
 * and change no figure.
 */
export interface RelatedFlags {
  payee: boolean;
  domain: boolean;
}

/**
 * The table of related parties: the endpoints that took money without an answer, searched by payee and by registrable
 * domain, so that the card of an endpoint shows what those of its payee and domain did. One endpoint affects the card
 * of another only through this table.
 */
export class RelatedParties {
  readonly #capsByPayee = new Map<string, Set<string>>();
  readonly #capsByDomain = new Map<string, Set<string>>();
  /**
   * sha256 over the lines {cap, domain, pay_to} in RFC 8785 form, each followed by a newline, ascending by cap. The
   * header of a run contains it.
   */
  readonly sha256: string;

  constructor(sellers: readonly NonDeliveringSeller[]) {
    const hash = createHash("sha256");
    const byCap = (a: NonDeliveringSeller, b: NonDeliveringSeller) =>
      Buffer.compare(Buffer.from(a.cap), Buffer.from(b.cap));
    for (const { cap, pay_to, domain } of [...sellers].sort(byCap)) {
      hash.update(`${canonicalText({ cap, domain, pay_to })}\n`);
      addCap(this.#capsByPayee, payeeKey(pay_to), cap);
      addCap(this.#capsByDomain, domain, cap);
    }
    this.sha256 = hash.digest("hex");
  }

  /** Flags of one endpoint. Its own entries in the table do not count. */
  flagsOf(endpoint: NonDeliveringSeller): RelatedFlags {
    return {
      payee: hasOtherCap(this.#capsByPayee, payeeKey(endpoint.pay_to), endpoint.cap),
      domain: hasOtherCap(this.#capsByDomain, endpoint.domain, endpoint.cap),
    };
  }

  /** Other endpoints that took money with this payee or under this registrable domain, ascending. */
  nonDeliveringCaps({ cap, pay_to, domain }: Omit<NonDeliveringSeller, "cap"> & { cap: string | null }): string[] {
    const caps = new Set([
      ...(this.#capsByPayee.get(payeeKey(pay_to) ?? "") ?? []),
      ...(this.#capsByDomain.get(domain ?? "") ?? []),
    ]);
    return [...caps].filter((one) => one !== cap).sort();
  }
}

/**
 * The form in which payees are compared, so that one address with different upper and lower case counts as one payee.
 */
const payeeKey = (payTo: string | null): string | null => (payTo === null ? null : addressKey(payTo));

function addCap(caps: Map<string, Set<string>>, key: string | null, cap: string): void {
  if (key === null) return;
  const capsOfKey = caps.get(key);
  if (capsOfKey) capsOfKey.add(cap);
  else caps.set(key, new Set([cap]));
}

function hasOtherCap(caps: ReadonlyMap<string, ReadonlySet<string>>, key: string | null, cap: string): boolean {
  const capsOfKey = key === null ? undefined : caps.get(key);
  return capsOfKey !== undefined && capsOfKey.size > (capsOfKey.has(cap) ? 1 : 0);
}

/**
 * Hash of the empty table, which runs contain until the first theft. No file and no leaf is published for this table.
 */
export const NO_RELATED_PARTIES_SHA256 = new RelatedParties([]).sha256;
