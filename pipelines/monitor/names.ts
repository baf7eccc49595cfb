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

/** Largest number of endpoints that are watched. All of them are in memory while leaves are read. */
const MAX_WATCHED = 100_000;
/** Number of leaves that are read between two commits. */
const LEAVES_PER_COMMIT = 8_192;
/** While this many notices wait to be delivered, no further leaf is read for known names. */
const MAX_WAITING = 10_000;

/** Parses the watched names given on the command line. @throws Failure `usage` naming the option */
export function parseNames(options: Readonly<Record<"cap" | "payTo" | "domain", readonly string[]>>): WatchedName[] {
  const caps = options.cap.map((value) => {
    if (!isId("cap", value)) throw new Failure("usage", `--cap: not a capability id: ${value}`);
    return { kind: "cap" as const, value };
  });
  const payees = options.payTo.map((value) => {
    if (!/^[\x21-\x7e]{1,200}$/.test(value)) throw new Failure("usage", `--pay-to: not an address: ${value}`);
    return { kind: "pay_to" as const, value: addressKey(value) };
  });
  const domains = options.domain.map((value) => {
    const host = /^[^\s/?#@\\]+$/.test(value) ? parseUrl(`https://${value}`)?.host : undefined;
    if (!host) throw new Failure("usage", `--domain: not a host: ${value}`);
    return { kind: "domain" as const, value: host };
  });
  return [...caps, ...payees, ...domains];
}

/** Returns whether a host is the named domain, or a subdomain of it. */
const isInDomain = (host: string, name: string): boolean => host === name || host.endsWith(`.${name}`);

const hasPort = (name: string): boolean => /:\d+$/.test(name);

/** Returns the watched names that match a listing. A domain without a port matches every port. */
function namesOfListing(
  { capability_id, url, offers = [] }: ListingFacts,
  names: readonly WatchedName[],
): WatchedName[] {
  const { host, hostname } = parseUrl(url) ?? { host: "", hostname: "" };
  const payees = new Set(offers.flatMap(({ pay_to }) => (pay_to === null ? [] : [addressKey(pay_to)])));
  return names.filter(({ kind, value }) => {
    if (kind === "cap") return value === capability_id;
    return kind === "pay_to" ? payees.has(value) : isInDomain(hasPort(value) ? host : hostname, value);
  });
}

/**
 * Returns the watched names that match an entry of the table of related parties. The entry's domain is registrable, so
 * it also matches a watched name below it.
 */
const namesOfNonDelivering = (
  { cap, domain, pay_to }: RelatedPartiesLeaf["add"][number],
  names: readonly WatchedName[],
): WatchedName[] =>
  names.filter(({ kind, value }) => {
    if (kind === "cap") return value === cap;
    if (kind === "pay_to") return pay_to !== null && addressKey(pay_to) === value;
    return domain !== null && (isInDomain(domain, value) || domain === registrableDomain(`https://${value}`));
  });

type WatchedEndpoint = Endpoint<Standing, Standing>;

/**
 * Keeps of each card the members that notices compare. The kept letters are these members of the newest headline (main)
 * card only.
 */
const PROJECTION: Projection<WatchedEndpoint> = {
  createEndpoint: emptyEndpoint,
  card: ({ card }) => comparedMembers(card),
  letters: (_, { card }: GradeLeaf) => [comparedMembers(card)],
};

/** The stored state of a watched endpoint. */
interface WatchedState {
  /** Leaves below this position were applied. */
  next: number;
  /** All names that the endpoint has matched, even those that the command line does not give now. */
  names: WatchedName[];
  endpoint: WatchedEndpoint;
  /** Whether a correction, or the withdrawal of one, was published after the endpoint's newest headline card. */
  corrected: boolean;
  /** Whether the endpoint is in the table of related parties: it took money and answered nothing. */
  took: boolean;
}

/** A change of a watched endpoint. */
export interface NameChange {
  type: "monitor.changed";
  log: string;
  capability_id: string;
  /** null before the endpoint's first listing. */
  url: string | null;
  /**
   * The names for which this leaf was read and which the endpoint matches. If the leaf was read for a new name, also
   * the earlier names of the endpoint.
   */
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
  /** The change in one sentence. */
  says: string;
  /** Position in the log of the leaf that made the change, and when it was published. */
  leaf: number;
  at: string;
}

type Difference = Pick<NameChange, "change" | "from" | "to" | "says">;

const letterText = (one: Standing | null): string => (one ? `${one.band} (${one.tier})` : "no letter");

/** Returns what a card changes; null if only its figures differ. */
function cardDifference(before: WatchedState, { card }: GradeLeaf): Difference | null {
  const [from = null] = before.endpoint.letters;
  const to = comparedMembers(card);
  const change = classifyChange(from, to, before.corrected);
  if (change === "figures") return null;
  const addedFlags = to.flags.filter((flag) => !from?.flags.includes(flag));
  const removedFlags = from?.flags.filter((flag) => !to.flags.includes(flag)) ?? [];
  const parts = [
    from?.band === to.band && from.tier === to.tier ? letterText(to) : `${letterText(from)} -> ${letterText(to)}`,
    ...(addedFlags.length > 0 ? [`now ${addedFlags.join(", ")}`] : []),
    ...(removedFlags.length > 0 ? [`no longer ${removedFlags.join(", ")}`] : []),
  ];
  return { change, from, to, says: parts.join("; ") };
}

/** Returns what a listing leaf changes; null if it changes nothing. */
function listingDifference({ endpoint }: WatchedState, to: ListingFacts): Difference | null {
  const { listing: from, listed } = endpoint;
  if (!from || !listed) return { change: "listed", from, to, says: `listed: ${to.method} ${to.url}` };
  const changedMembers = (Object.keys(to) as (keyof ListingFacts)[]).filter(
    (member) => JSON.stringify(from[member]) !== JSON.stringify(to[member]),
  );
  if (changedMembers.length === 0) return null;
  const pickChanged = (facts: ListingFacts) =>
    Object.fromEntries(changedMembers.map((member) => [member, facts[member] ?? null]));
  return {
    change: "listing",
    from: pickChanged(from),
    to: pickChanged(to),
    says: `its listing changed: ${changedMembers.join(", ")}`,
  };
}

const explanationOf = (body: Record<string, unknown>): string => (typeof body.says === "string" ? body.says : "");

/** Returns what a leaf about a watched endpoint changes, or null. */
function differenceOf(before: WatchedState, leaf: Leaf): Difference | null {
  switch (leaf.kind) {
    case "grade":
      return leaf.headline ? cardDifference(before, leaf) : null;
    case "listing":
      return listingDifference(before, toListingFacts(leaf));
    case "delisting":
      return { change: "delisted", from: null, to: null, says: "no longer listed" };
    case "correction":
    case "dispute":
    case "reinstated":
      return { change: leaf.kind, from: null, to: leaf.body, says: `${leaf.kind}: ${explanationOf(leaf.body)}` };
    default:
      return null;
  }
}

/** Returns the state of an endpoint after a leaf about it. */
function applyToWatched(before: WatchedState, leaf: Leaf): WatchedState {
  const endpoint = applyLeafToEndpoint(before.endpoint, leaf, PROJECTION);
  const isCard = leaf.kind === "grade" && leaf.headline;
  const isCorrection = leaf.kind === "correction" || leaf.kind === "reinstated";
  const corrected = isCorrection || (before.corrected && !isCard);
  return { ...before, next: leaf.index + 1, endpoint: { ...endpoint, corrections: [] }, corrected };
}

export const nameText = ({ kind, value }: WatchedName): string => `${kind.replace("_", "-")} ${value}`;
const isSameName = (a: WatchedName, b: WatchedName): boolean => a.kind === b.kind && a.value === b.value;

/** Returns the state with these names added; the given object if it has all of them. */
function withNames(state: WatchedState, names: readonly WatchedName[]): WatchedState {
  const added = names.filter((name) => !state.names.some((one) => isSameName(one, name)));
  return added.length === 0 ? state : { ...state, names: [...state.names, ...added] };
}

/** Applies leaves for some names, and collects the new states and notices until `commit` stores them. */
class NameScan {
  readonly #watched: Map<string, WatchedState>;
  readonly #changed = new Set<string>();
  #notices: NameChange[] = [];
  /** Endpoints that this pass leaves to the next one ({@link endPass}), and the first leaf that the next one reads. */
  readonly #behind = new Set<string>();
  #nextPass: number | null = null;

  constructor(
    private readonly state: MonitorState,
    private readonly log: string,
    private readonly names: readonly WatchedName[],
    /**
     * Whether the names were not watched before. Then changes are reported only for endpoints that an earlier name
     * watches.
     */
    private readonly areNamesNew: boolean,
    private readonly post: boolean,
  ) {
    this.#watched = new Map(
      state.listWatched().map(({ cap, next, state: kept }) => [cap, { ...JSON.parse(kept), next }]),
    );
  }

  /**
   * Applies the next leaf. A leaf that does not match the schema of leaves is skipped, since the log may have signed
   * anything.
   */
  applyLeaf(rawLeaf: Leaf): void {
    if (!this.#mayConcern(rawLeaf)) return;
    const { data: leaf } = Leaf.safeParse(rawLeaf);
    if (!leaf) return;
    if (leaf.kind === "kin") {
      this.#applyRelatedParties(leaf);
      return;
    }
    const cap = endpointOf(leaf);
    if (cap === null) return;
    const namesFound = leaf.kind === "listing" ? namesOfListing(leaf, this.names) : this.#namesOfCap(cap);
    const before = this.#stateBefore(cap, leaf.index, namesFound);
    if (!before) return;
    this.#addNotice(before, leaf, differenceOf(before, leaf));
    this.#set(cap, applyToWatched(before, leaf));
  }

  /** Returns whether this leaf may be about a watched endpoint or name. Most leaves are not, and are not parsed. */
  #mayConcern(leaf: Leaf): boolean {
    if (leaf.kind === "kin" || leaf.kind === "listing") return true;
    const { card, capability_id } = leaf as { card?: { capability_id?: unknown } | null; capability_id?: unknown };
    const cap = leaf.kind === "grade" ? card?.capability_id : capability_id;
    return typeof cap === "string" && (this.#watched.has(cap) || this.#namesOfCap(cap).length > 0);
  }

  #namesOfCap = (cap: string): WatchedName[] => this.names.filter(({ kind, value }) => kind === "cap" && value === cap);

  /**
   * Returns an endpoint's state before this leaf, to which the names that match the leaf are added. Returns null if the
   * endpoint matches none of this scan's names, or the leaf was applied before. In the second case the names are still
   * added to the state: for a new name, leaves are read again that were read for earlier names.
   *
   * Also returns null if the endpoint matched only names for which this scan does not read, until this leaf brings it to
   * a name of this scan. Leaves before this one may not have been applied, since those names did not read them yet. The
   * next pass applies them and this one in their order; without them, their changes would never be told.
   */
  #stateBefore(cap: string, index: number, namesFound: readonly WatchedName[]): WatchedState | null {
    const watched = this.#watched.get(cap);
    if (watched && watched.next > index) {
      const named = withNames(watched, namesFound);
      if (named !== watched) this.#set(cap, named);
      return null;
    }
    if (this.#behind.has(cap)) return null;
    if (watched && namesFound.length > 0 && this.#currentNames(watched).length === 0 && watched.next < index) {
      this.#set(cap, withNames(watched, namesFound));
      this.#behind.add(cap);
      this.#nextPass = Math.min(this.#nextPass ?? index, watched.next);
      return null;
    }
    if (!watched && namesFound.length === 0) return null;
    if (!watched && this.#watched.size >= MAX_WATCHED) {
      throw new Failure("usage", `the names concern more than ${MAX_WATCHED} endpoints: name fewer`);
    }
    const before = watched ?? { next: index, names: [], endpoint: emptyEndpoint(cap), corrected: false, took: false };
    const named = withNames(before, namesFound);
    return this.#currentNames(named).length > 0 ? named : null;
  }

  /** Returns those names of the state for which this scan reads. */
  #currentNames = ({ names }: WatchedState): WatchedName[] =>
    names.filter((name) => this.names.some((one) => isSameName(one, name)));

  #applyRelatedParties({ index, at, add, remove }: RelatedPartiesLeaf): void {
    const added = new Set(add.map(({ cap }) => cap));
    for (const cap of remove) {
      const before = added.has(cap) ? null : this.#stateBefore(cap, index, []);
      if (!before?.took) continue;
      const says = "no longer among those that took money and answered nothing";
      this.#addNotice(before, { index, at }, { change: "cleared", from: null, to: null, says });
      this.#set(cap, { ...before, took: false, next: index + 1 });
    }
    for (const seller of add) {
      const before = this.#stateBefore(seller.cap, index, namesOfNonDelivering(seller, this.names));
      if (!before) continue;
      const says = "it took money and answered nothing, which counts for its payee and its domain too";
      if (!before.took)
        this.#addNotice(before, { index, at }, { change: "took_the_money", from: null, to: seller, says });
      this.#set(seller.cap, { ...before, took: true, next: index + 1 });
    }
  }

  #set(cap: string, watched: WatchedState): void {
    this.#watched.set(cap, watched);
    this.#changed.add(cap);
  }

  #addNotice(before: WatchedState, leaf: Pick<Leaf, "index" | "at">, difference: Difference | null): void {
    if (!difference) return;
    // The leaves of an endpoint are applied once, for all of its names. An earlier name that has not read this leaf yet
    // (many notices wait, or the command line leaves the name out now) will not get it later, so it is reported now.
    const hasEarlierName = this.#currentNames(before).length < before.names.length;
    if (this.areNamesNew && !hasEarlierName) return;
    this.#notices.push(this.#createNotice(before, leaf, difference));
  }

  #createNotice(watched: WatchedState, { index, at }: Pick<Leaf, "index" | "at">, difference: Difference): NameChange {
    const { cap, listing } = watched.endpoint;
    const to = difference.to as ListingFacts | null;
    const url = difference.change === "listed" ? (to?.url ?? null) : (listing?.url ?? null);
    const names = (this.areNamesNew ? watched.names : this.#currentNames(watched)).map(nameText);
    const commonMembers = { type: "monitor.changed" as const, log: this.log, capability_id: cap, url, names };
    return { ...commonMembers, ...difference, leaf: index, at };
  }

  /** Commits the states and notices of the leaves below position `next`; of the names, as far as no pass is missing. */
  commit(next: number): void {
    const rows = [...this.#changed].map((cap) => {
      const { next: nextLeaf, ...kept } = this.#watched.get(cap)!;
      return { cap, next: nextLeaf, state: JSON.stringify(kept) };
    });
    const notices = this.#notices.map((notice) => JSON.stringify(notice));
    const readTo = Math.min(next, this.#nextPass ?? next);
    this.state.saveReadLeaves({ names: this.names, next: readTo, rows, notices, post: this.post });
    this.#changed.clear();
    this.#notices = [];
  }

  /** Ends a pass over the leaves. @returns the first leaf of a further pass; null when none is needed */
  endPass(): number | null {
    const nextPass = this.#nextPass;
    this.#nextPass = null;
    this.#behind.clear();
    return nextPass;
  }

  /** Whether so many notices wait that no further leaf may be read. */
  get isFull(): boolean {
    return this.#notices.length + this.state.countWaitingNotices() >= MAX_WAITING;
  }

  /** Returns the endpoints that match the names of this scan. */
  foundNames(): FoundName[] {
    return [...this.#watched.values()]
      .filter((one) => this.#currentNames(one).length > 0)
      .map((one) => ({
        ...{ capability_id: one.endpoint.cap, url: one.endpoint.listing?.url ?? null, listed: one.endpoint.listed },
        ...{
          card: one.endpoint.letters[0] ?? null,
          took_the_money: one.took,
          names: this.#currentNames(one).map(nameText),
        },
      }));
  }
}

/** An endpoint that matches a name that was not watched before. */
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
  /** Origin of the log. */
  log: string;
  /** Whether the notices must also be posted to a webhook. */
  post: boolean;
  /** Yields the proven leaves [from, size) in order. */
  leaves(from: number): AsyncIterable<ReadLeaf>;
  size: number;
}

/**
 * Reads for each name the leaves that were not read for it yet, and commits what they change. Only watched endpoints
 * are kept in memory. For names that were not watched before, all leaves are read, and notices are made only for
 * endpoints that an earlier name watches, from where that name stopped.
 * @returns the endpoints that match the names that were not watched before
 * @throws what `leaves` throws, Failure `usage` when too many endpoints match; what was committed before stays
 */
export async function readNewLeaves(parts: NamesParts, names: readonly WatchedName[]): Promise<FoundName[]> {
  const { state, log, post, size } = parts;
  const groups = new Map<number | null, WatchedName[]>();
  for (const name of names) {
    const next = state.nextOf(name);
    groups.set(next, [...(groups.get(next) ?? []), name]);
  }
  const found: FoundName[] = [];
  // Leaves are read for known names first, so that their notices are made even if reading for new names fails.
  for (const [next, group] of [...groups].sort(([a], [b]) => (a ?? size + 1) - (b ?? size + 1))) {
    if (next !== null && next >= size) continue;
    const scan = new NameScan(state, log, group, next === null, post);
    let nextLeaf = next ?? 0;
    for (let from: number | null = nextLeaf; from !== null; from = scan.endPass()) {
      nextLeaf = from;
      for await (const { index, leaf } of parts.leaves(from)) {
        if (next !== null && scan.isFull) break;
        scan.applyLeaf(leaf);
        nextLeaf = index + 1;
        if (next !== null && nextLeaf % LEAVES_PER_COMMIT === 0) scan.commit(nextLeaf);
      }
    }
    scan.commit(nextLeaf);
    if (next === null) found.push(...scan.foundNames());
  }
  return found;
}
