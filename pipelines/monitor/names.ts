import { Failure } from "../../infra/errors.ts";
import { parseUrl } from "../../infra/url.ts";
import { classifyChange, comparedMembers } from "../6-notify/notice.ts";
import {
  applyLeafToEndpoint,
  type Endpoint,
  emptyEndpoint,
  endpointOf,
  type ListingFacts,
  type Projection,
  toListingFacts,
} from "../published/endpoint.ts";
import type { ReadLeaf } from "../published/reader.ts";
import type { Standing } from "../record/bodies.ts";
import { isId } from "../record/ids.ts";
import { type GradeLeaf, Leaf, type RelatedPartiesLeaf } from "../record/leaf.ts";
import { addressKey } from "../record/networks.ts";
import { registrableDomain } from "../record/url.ts";
import type { MonitorState, WatchedName } from "./state.ts";

/** Most endpoints that are watched: each is kept in memory while leaves are read. */
const MAX_WATCHED = 100_000;
/** Leaves that are read between two commits. */
const LEAVES_AT_ONCE = 8_192;
/** While this many notices wait to be delivered, no further leaf is read. */
const MAX_WAITING = 10_000;

/** Reads the names of the command line. @throws Failure `usage` naming the option */
export function readNames(given: Readonly<Record<"cap" | "payTo" | "domain", readonly string[]>>): WatchedName[] {
  const caps = given.cap.map((value) => {
    if (!isId("cap", value)) throw new Failure("usage", `--cap: not a capability id: ${value}`);
    return { kind: "cap" as const, value };
  });
  const payees = given.payTo.map((value) => {
    if (!/^[\x21-\x7e]{1,200}$/.test(value)) throw new Failure("usage", `--pay-to: not an address: ${value}`);
    return { kind: "pay_to" as const, value: addressKey(value) };
  });
  const domains = given.domain.map((value) => {
    const host = /^[^\s/?#@\\]+$/.test(value) ? parseUrl(`https://${value}`)?.host : undefined;
    if (!host) throw new Failure("usage", `--domain: not a host: ${value}`);
    return { kind: "domain" as const, value: host };
  });
  return [...caps, ...payees, ...domains];
}

/** Is this host the named domain, or a subdomain of it? */
const isBelow = (host: string, name: string): boolean => host === name || host.endsWith(`.${name}`);

/** The names that a listing concerns. */
function namesOfListing(
  { capability_id, url, offers = [] }: ListingFacts,
  names: readonly WatchedName[],
): WatchedName[] {
  const host = parseUrl(url)?.host ?? "";
  const payees = new Set(offers.flatMap(({ pay_to }) => (pay_to === null ? [] : [addressKey(pay_to)])));
  return names.filter(({ kind, value }) => {
    if (kind === "cap") return value === capability_id;
    return kind === "pay_to" ? payees.has(value) : isBelow(host, value);
  });
}

/** The names that an entry of the table of related parties concerns. It names registrable domains. */
const namesOfThief = (
  { cap, domain, pay_to }: RelatedPartiesLeaf["add"][number],
  names: readonly WatchedName[],
): WatchedName[] =>
  names.filter(({ kind, value }) => {
    if (kind === "cap") return value === cap;
    if (kind === "pay_to") return pay_to !== null && addressKey(pay_to) === value;
    return domain !== null && (isBelow(domain, value) || domain === registrableDomain(`https://${value}`));
  });

type WatchedEndpoint = Endpoint<Standing, Standing>;

/** Keeps the members of cards that notices compare, and of letters the newest headline. */
const PROJECTION: Projection<WatchedEndpoint> = {
  createEndpoint: emptyEndpoint,
  card: ({ card }) => comparedMembers(card),
  letters: (_, { card }: GradeLeaf) => [comparedMembers(card)],
};

/** The stored state of a watched endpoint. */
interface Watched {
  next: number;
  /** All names for which it is watched, also those that the command line does not give now. */
  names: WatchedName[];
  endpoint: WatchedEndpoint;
  /** Was a correction, or the withdrawal of one, published after its newest card? */
  corrected: boolean;
  /** Is it in the table of those that took money and answered nothing? */
  took: boolean;
}

/** A change of a watched endpoint. */
export interface NameChange {
  type: "monitor.changed";
  log: string;
  capability_id: string;
  /** null before its first listing. */
  url: string | null;
  /** The names of the command line that it concerns. */
  names: string[];
  change:
    | "listed"
    | "listing"
    | "delisted"
    | "first"
    | "band"
    | "tier"
    | "flags"
    | "corrected"
    | "correction"
    | "dispute"
    | "reinstated"
    | "took_the_money"
    | "cleared";
  from: unknown;
  to: unknown;
  /** One sentence. */
  says: string;
  /** Position of the leaf in the log, and when it was published. */
  leaf: number;
  at: string;
}

type Difference = Pick<NameChange, "change" | "from" | "to" | "says">;

const LETTER = (one: Standing | null): string => (one ? `${one.band} (${one.tier})` : "no letter");

/** Returns what a card changes; null where only figures changed. */
function cardChange(before: Watched, { card }: GradeLeaf): Difference | null {
  const [from = null] = before.endpoint.letters;
  const to = comparedMembers(card);
  const change = classifyChange(from, to, before.corrected);
  if (change === "figures") return null;
  const flags = to.flags.filter((flag) => !from?.flags.includes(flag));
  const gone = from?.flags.filter((flag) => !to.flags.includes(flag)) ?? [];
  const parts = [
    from?.band === to.band && from.tier === to.tier ? LETTER(to) : `${LETTER(from)} -> ${LETTER(to)}`,
    ...(flags.length > 0 ? [`now ${flags.join(", ")}`] : []),
    ...(gone.length > 0 ? [`no longer ${gone.join(", ")}`] : []),
  ];
  return { change, from, to, says: parts.join("; ") };
}

/** Returns what a listing leaf changes; null where nothing changed. */
function listingChange({ endpoint }: Watched, to: ListingFacts): Difference | null {
  const { listing: from, listed } = endpoint;
  if (!from || !listed) return { change: "listed", from, to, says: `listed: ${to.method} ${to.url}` };
  const members = (Object.keys(to) as (keyof ListingFacts)[]).filter(
    (member) => JSON.stringify(from[member]) !== JSON.stringify(to[member]),
  );
  if (members.length === 0) return null;
  const only = (facts: ListingFacts) => Object.fromEntries(members.map((member) => [member, facts[member] ?? null]));
  return { change: "listing", from: only(from), to: only(to), says: `its listing changed: ${members.join(", ")}` };
}

const wordsOf = (body: Record<string, unknown>): string => (typeof body.says === "string" ? body.says : "");

/** Returns what a leaf about this endpoint changes, or null. */
function differenceOf(before: Watched, leaf: Leaf): Difference | null {
  switch (leaf.kind) {
    case "grade":
      return leaf.headline ? cardChange(before, leaf) : null;
    case "listing":
      return listingChange(before, toListingFacts(leaf));
    case "delisting":
      return { change: "delisted", from: null, to: null, says: "no longer listed" };
    case "correction":
    case "dispute":
    case "reinstated":
      return { change: leaf.kind, from: null, to: leaf.body, says: `${leaf.kind}: ${wordsOf(leaf.body)}` };
    default:
      return null;
  }
}

/** Returns the state of an endpoint after a leaf about it. */
function applied(before: Watched, leaf: Leaf): Watched {
  const endpoint = applyLeafToEndpoint(before.endpoint, leaf, PROJECTION);
  const isCard = leaf.kind === "grade" && leaf.headline;
  const isCorrection = leaf.kind === "correction" || leaf.kind === "reinstated";
  const corrected = isCorrection || (before.corrected && !isCard);
  return { ...before, next: leaf.index + 1, endpoint: { ...endpoint, corrections: [] }, corrected };
}

export const nameText = ({ kind, value }: WatchedName): string => `${kind.replace("_", "-")} ${value}`;
const isSameName = (a: WatchedName, b: WatchedName): boolean => a.kind === b.kind && a.value === b.value;

/** Reads leaves for some names, and collects new states and notices until they are committed. */
class NameScan {
  readonly #watched: Map<string, Watched>;
  readonly #changed = new Set<string>();
  #notices: NameChange[] = [];

  constructor(
    private readonly state: MonitorState,
    private readonly log: string,
    private readonly names: readonly WatchedName[],
    /** False for names that are new here: leaves that were published before are not reported as changes. */
    private readonly tells: boolean,
    private readonly post: boolean,
  ) {
    this.#watched = new Map(state.watched().map(({ cap, next, state: kept }) => [cap, { ...JSON.parse(kept), next }]));
  }

  /** Applies the next leaf. A leaf that does not match its schema is skipped, since a log may hold anything. */
  take(given: Leaf): void {
    if (!this.#mayConcern(given)) return;
    const { data: leaf } = Leaf.safeParse(given);
    if (!leaf) return;
    if (leaf.kind === "kin") {
      this.#related(leaf);
      return;
    }
    const cap = endpointOf(leaf);
    if (cap === null) return;
    const found = leaf.kind === "listing" ? namesOfListing(leaf, this.names) : this.#byCap(cap);
    const before = this.#before(cap, leaf.index, found);
    if (!before) return;
    this.#tell(before, leaf, differenceOf(before, leaf));
    this.#set(cap, applied(before, leaf));
  }

  /** May this leaf concern a name? Most leaves do not, and are not parsed further. */
  #mayConcern(leaf: Leaf): boolean {
    if (leaf.kind === "kin" || leaf.kind === "listing") return true;
    const { card, capability_id } = leaf as { card?: { capability_id?: unknown } | null; capability_id?: unknown };
    const cap = leaf.kind === "grade" ? card?.capability_id : capability_id;
    return typeof cap === "string" && (this.#watched.has(cap) || this.#byCap(cap).length > 0);
  }

  #byCap = (cap: string): WatchedName[] => this.names.filter(({ kind, value }) => kind === "cap" && value === cap);

  /**
   * Returns an endpoint's state before this leaf, with the names that the leaf brings; null where the endpoint is not
   * watched, or the leaf was applied before.
   */
  #before(cap: string, index: number, found: readonly WatchedName[]): Watched | null {
    const known = this.#watched.get(cap);
    if (known && known.next > index) return null;
    if (!known && found.length === 0) return null;
    if (!known && this.#watched.size >= MAX_WATCHED) {
      throw new Failure("usage", `the names concern more than ${MAX_WATCHED} endpoints: name fewer`);
    }
    const before = known ?? { next: index, names: [], endpoint: emptyEndpoint(cap), corrected: false, took: false };
    const added = found.filter((name) => !before.names.some((one) => isSameName(one, name)));
    const all = added.length === 0 ? before : { ...before, names: [...before.names, ...added] };
    return this.#asked(all).length > 0 ? all : null;
  }

  #asked = ({ names }: Watched): WatchedName[] =>
    names.filter((name) => this.names.some((one) => isSameName(one, name)));

  #related({ index, at, add, remove }: RelatedPartiesLeaf): void {
    const added = new Set(add.map(({ cap }) => cap));
    for (const cap of remove) {
      const before = added.has(cap) ? null : this.#before(cap, index, []);
      if (!before?.took) continue;
      const says = "no longer among those that took money and answered nothing";
      this.#tell(before, { index, at }, { change: "cleared", from: null, to: null, says });
      this.#set(cap, { ...before, took: false, next: index + 1 });
    }
    for (const thief of add) {
      const before = this.#before(thief.cap, index, namesOfThief(thief, this.names));
      if (!before) continue;
      const says = "it took money and answered nothing, which counts for its payee and its domain too";
      if (!before.took) this.#tell(before, { index, at }, { change: "took_the_money", from: null, to: thief, says });
      this.#set(thief.cap, { ...before, took: true, next: index + 1 });
    }
  }

  #set(cap: string, watched: Watched): void {
    this.#watched.set(cap, watched);
    this.#changed.add(cap);
  }

  #tell(before: Watched, leaf: Pick<Leaf, "index" | "at">, difference: Difference | null): void {
    if (!difference || !this.tells) return;
    this.#notices.push(this.#notice(before, leaf, difference));
  }

  #notice(watched: Watched, { index, at }: Pick<Leaf, "index" | "at">, difference: Difference): NameChange {
    const { cap, listing } = watched.endpoint;
    const to = difference.to as ListingFacts | null;
    const url = difference.change === "listed" ? (to?.url ?? null) : (listing?.url ?? null);
    const names = this.#asked(watched).map(nameText);
    const about = { type: "monitor.changed" as const, log: this.log, capability_id: cap, url, names };
    return { ...about, ...difference, leaf: index, at };
  }

  /** Commits what was read up to leaf `next`. */
  commit(next: number): void {
    const rows = [...this.#changed].map((cap) => {
      const { next: row, ...kept } = this.#watched.get(cap)!;
      return { cap, next: row, state: JSON.stringify(kept) };
    });
    const notices = this.#notices.map((notice) => JSON.stringify(notice));
    this.state.saveRead({ names: this.names, next, rows, notices, post: this.post });
    this.#changed.clear();
    this.#notices = [];
  }

  get isFull(): boolean {
    return this.#notices.length + this.state.noticesWaiting() >= MAX_WAITING;
  }

  /** Returns the endpoints that the names concern now. */
  standing(): FoundName[] {
    return [...this.#watched.values()]
      .filter((one) => this.#asked(one).length > 0)
      .map((one) => ({
        ...{ capability_id: one.endpoint.cap, url: one.endpoint.listing?.url ?? null, listed: one.endpoint.listed },
        ...{ card: one.endpoint.letters[0] ?? null, took_the_money: one.took, names: this.#asked(one).map(nameText) },
      }));
  }
}

/** An endpoint that a new name concerns. */
export interface FoundName {
  capability_id: string;
  url: string | null;
  listed: boolean;
  card: Standing | null;
  took_the_money: boolean;
  names: string[];
}

export interface NamesParts {
  state: MonitorState;
  log: string;
  post: boolean;
  /** Proven leaves [from, size) in order. */
  leaves(from: number): AsyncIterable<ReadLeaf>;
  size: number;
}

/**
 * Reads the leaves that were not read yet for each name, and commits the changes that they make. Only endpoints that the
 * names concern are in memory. For a name that is new here all leaves are read and no notice is made; the endpoints that
 * it concerns are returned.
 * @throws what `leaves` throws; what was committed before stays
 */
export async function readNewLeaves(parts: NamesParts, names: readonly WatchedName[]): Promise<FoundName[]> {
  const { state, log, post, size } = parts;
  const groups = new Map<number | null, WatchedName[]>();
  for (const name of names) {
    const next = state.nextOf(name);
    groups.set(next, [...(groups.get(next) ?? []), name]);
  }
  const found: FoundName[] = [];
  // Names that were read before come first, so that their notices do not depend on the new names.
  for (const [next, group] of [...groups].sort(([a], [b]) => (a ?? size + 1) - (b ?? size + 1))) {
    if (next !== null && next >= size) continue;
    const scan = new NameScan(state, log, group, next !== null, post);
    let read = next ?? 0;
    for await (const { index, leaf } of parts.leaves(read)) {
      if (next !== null && scan.isFull) break;
      scan.take(leaf);
      read = index + 1;
      if (next !== null && read % LEAVES_AT_ONCE === 0) scan.commit(read);
    }
    scan.commit(read);
    if (next === null) found.push(...scan.standing());
  }
  return found;
}
