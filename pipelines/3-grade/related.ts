import { createHash } from "node:crypto";
import { canonicalText } from "../../infra/canonical.ts";
import { addressKey } from "../record/networks.ts";

/** An endpoint that took money in its window, and where that money goes. */
export interface Thief {
  cap: string;
  pay_to: string | null;
  domain: string | null;
}

/** What other endpoints of the same payTo or registrable domain did: flags, never a number. */
export interface RelatedFlags {
  payee: boolean;
  domain: boolean;
}

/** The one fact that crosses endpoints, looked up by payTo and by registrable domain. */
export class RelatedParties {
  readonly #payTo = new Map<string, Set<string>>();
  readonly #domain = new Map<string, Set<string>>();
  /** sha256 over the RFC 8785 lines {cap, domain, pay_to}, each with \n, ascending by cap: a run names it. */
  readonly sha256: string;

  constructor(thieves: readonly Thief[]) {
    const hash = createHash("sha256");
    const byCap = (a: Thief, b: Thief) => Buffer.compare(Buffer.from(a.cap), Buffer.from(b.cap));
    for (const { cap, pay_to, domain } of [...thieves].sort(byCap)) {
      hash.update(`${canonicalText({ cap, domain, pay_to })}\n`);
      add(this.#payTo, keyOf(pay_to), cap);
      add(this.#domain, domain, cap);
    }
    this.sha256 = hash.digest("hex");
  }

  /** Flags of one endpoint; its own thefts are not those of related parties. */
  of(endpoint: Thief): RelatedFlags {
    return {
      payee: another(this.#payTo, keyOf(endpoint.pay_to), endpoint.cap),
      domain: another(this.#domain, endpoint.domain, endpoint.cap),
    };
  }

  /** Endpoints but this one that took money: at this payTo, or under this registrable domain; ascending. */
  thieves({ cap, pay_to, domain }: Omit<Thief, "cap"> & { cap: string | null }): string[] {
    const all = new Set([...(this.#payTo.get(keyOf(pay_to) ?? "") ?? []), ...(this.#domain.get(domain ?? "") ?? [])]);
    return [...all].filter((one) => one !== cap).sort();
  }
}

/** One address in two spellings of its checksum is one payee: writing it anew does not start clean. */
const keyOf = (payTo: string | null): string | null => (payTo === null ? null : addressKey(payTo));

function add(caps: Map<string, Set<string>>, key: string | null, cap: string): void {
  if (key === null) return;
  const known = caps.get(key);
  if (known) known.add(cap);
  else caps.set(key, new Set([cap]));
}

function another(caps: ReadonlyMap<string, ReadonlySet<string>>, key: string | null, cap: string): boolean {
  const known = key === null ? undefined : caps.get(key);
  return known !== undefined && known.size > (known.has(cap) ? 1 : 0);
}

/** Hash of the table that holds nobody: that of every run before the first theft. No file and no leaf holds it. */
export const NO_RELATED_PARTIES = new RelatedParties([]).sha256;
