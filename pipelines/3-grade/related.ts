import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { addressKey } from "../record/networks.ts";

/** An endpoint that took money without an answer within the window, with its payee and registrable domain. */
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
 * The table of endpoints that took money, searched by payee and by registrable domain. It is the only way in which one
 * endpoint affects another's card.
 */
export class RelatedParties {
  readonly #payTo = new Map<string, Set<string>>();
  readonly #domain = new Map<string, Set<string>>();
  /**
   * sha256 over the lines {cap, domain, pay_to} in RFC 8785 form, each followed by a newline, ascending by cap. A run
   * names it.
   */
  readonly sha256: string;

  constructor(sellers: readonly NonDeliveringSeller[]) {
    const hash = createHash("sha256");
    const byCap = (a: NonDeliveringSeller, b: NonDeliveringSeller) =>
      Buffer.compare(Buffer.from(a.cap), Buffer.from(b.cap));
    for (const { cap, pay_to, domain } of [...sellers].sort(byCap)) {
      hash.update(`${canonicalText({ cap, domain, pay_to })}\n`);
      addCap(this.#payTo, payeeKey(pay_to), cap);
      addCap(this.#domain, domain, cap);
    }
    this.sha256 = hash.digest("hex");
  }

  /** Flags of one endpoint. Its own entries in the table do not count. */
  flagsOf(endpoint: NonDeliveringSeller): RelatedFlags {
    return {
      payee: hasAnother(this.#payTo, payeeKey(endpoint.pay_to), endpoint.cap),
      domain: hasAnother(this.#domain, endpoint.domain, endpoint.cap),
    };
  }

  /** Other endpoints that took money with this payee or under this registrable domain, ascending. */
  nonDeliveringCaps({ cap, pay_to, domain }: Omit<NonDeliveringSeller, "cap"> & { cap: string | null }): string[] {
    const all = new Set([
      ...(this.#payTo.get(payeeKey(pay_to) ?? "") ?? []),
      ...(this.#domain.get(domain ?? "") ?? []),
    ]);
    return [...all].filter((one) => one !== cap).sort();
  }
}

/**
 * The form in which payees are compared, so that one address with different upper and lower case counts as one payee.
 */
const payeeKey = (payTo: string | null): string | null => (payTo === null ? null : addressKey(payTo));

function addCap(caps: Map<string, Set<string>>, key: string | null, cap: string): void {
  if (key === null) return;
  const known = caps.get(key);
  if (known) known.add(cap);
  else caps.set(key, new Set([cap]));
}

function hasAnother(caps: ReadonlyMap<string, ReadonlySet<string>>, key: string | null, cap: string): boolean {
  const known = key === null ? undefined : caps.get(key);
  return known !== undefined && known.size > (known.has(cap) ? 1 : 0);
}

/** Hash of the empty table, which every run before the first theft names. No file and no leaf contains this table. */
export const NO_RELATED_PARTIES = new RelatedParties([]).sha256;
