import { BoundedMap } from "./bounded-map.ts";

/**
 * Up to three names under which a request counts: its payer, the IP network of its client, and the domain that it makes
 * this process contact. Untrusted clients compete for resources. The rules of this file keep a name from taking so much
 * of a resource that a request under other names gets nothing. {@link Places} are held until their holder releases
 * them, and are never taken back; the entries of a {@link FairQueue} can be evicted.
 */
export interface Holder {
  /** Address of the wallet that pays. */
  payer?: string | undefined;
  /** Key of the client's IP network (`networkKey` in egress/address.ts). */
  client?: string | undefined;
  /** Registrable domain that is contacted; a platform with many subdomains counts as one. */
  domain?: string | undefined;
  /**
   * True if the holder may use the reserved places, because it pays or is trusted for another reason. False (default):
   * it gets other places only.
   */
  reserved?: boolean;
}

type Dimension = "payer" | "client" | "domain";
const DIMENSIONS: readonly Dimension[] = ["payer", "client", "domain"];

/** Returns the names under which a holder counts. */
export const namesOf = (holder: Holder): string[] =>
  DIMENSIONS.flatMap((dimension) => (holder[dimension] === undefined ? [] : [`${dimension} ${holder[dimension]}`]));

/** Counts by name; names with a count of zero are forgotten. */
class Counts {
  readonly #counts = new Map<string, number>();

  count(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(names: readonly string[], step: 1 | -1): void {
    for (const name of names) {
      const count = this.count(name) + step;
      if (count > 0) this.#counts.set(name, count);
      else this.#counts.delete(name);
    }
  }
}

/** Number of names whose debts are remembered. Beyond it, the name whose debt was raised longest ago is forgotten. */
const MAX_DEBTORS = 10_000;
/** Time in which a debt halves, ms. */
const DEBT_HALF_LIFE_MS = 300_000;

export interface PlacesOptions {
  /** Name of the resource, for error messages and for the list of all resources in test/shares.test.ts. */
  name: string;
  /** Number of places. */
  size: number;
  /** Number of places that only holders with `reserved` can get. */
  kept?: number;
  /** Fixed limits of the places that one payer, one client or one domain may hold; fair shares apply as well. */
  most?: Partial<Record<Dimension, number>>;
  /** Largest number of holders that wait for a place (default 1,024). */
  waiting?: number;
  /** Returns milliseconds of a monotonic counter. */
  now?: () => number;
}

/** A place that a holder has taken. */
export interface Place {
  /** Releases the place; further calls have no effect. */
  leave(): void;
  /**
   * Counts the place under another holder.
   * @returns false when that holder's share has no room; then nothing changes
   */
  move(holder: Holder): boolean;
}

/** A holder, as the names under which it counts. */
interface NamedHolder {
  names: string[];
  reserved: boolean;
}

interface WaitingHolder extends NamedHolder {
  /** Ends the wait. @param place null when the wait ends without a place */
  done(place: Place | null): void;
}

/**
 * A semaphore with fair shares. A holder gets a place when, under each of its names, it holds fewer places than are
 * free. So one holder alone can take half of all places, two holders a third each, and n holders leave 1/(n+1) for the
 * next (dynamic thresholds; Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Places are never
 * taken back, so this rule keeps some of them free. Of the holders that wait, the one with the least load gets the next
 * place; load is the number of places held plus the debt for failed work ({@link Places.addDebt}). When too many wait,
 * a waiting entry of the holder with the largest load is refused.
 */
export class Places {
  readonly name: string;
  readonly size: number;
  readonly #reservedSize: number;
  readonly #maxPerName: Partial<Record<string, number>>;
  readonly #maxWaiting: number;
  readonly #now: () => number;
  readonly #heldCounts = new Counts();
  readonly #waiting = new Set<WaitingHolder>();
  readonly #debts = new BoundedMap<string, { amount: number; at: number }>(MAX_DEBTORS);
  #takenCount = 0;
  #reservedTaken = 0;

  /** @throws RangeError when all places would be reserved */
  constructor({ name, size, kept = 0, most = {}, waiting = 1_024, now = () => performance.now() }: PlacesOptions) {
    if (size < 1 || kept >= size) throw new RangeError(`${name}: ${kept} of ${size} places are kept, none is left`);
    this.name = name;
    this.size = size;
    this.#reservedSize = kept;
    this.#maxPerName = most;
    this.#maxWaiting = waiting;
    this.#now = now;
  }

  /** Number of places that are held. */
  get takenCount(): number {
    return this.#takenCount;
  }

  /** Returns a place at once, or null when this holder can have none now. */
  tryTake(holder: Holder): Place | null {
    const namedHolder = toNamedHolder(holder);
    return this.#hasShare(namedHolder) ? this.#assign(namedHolder) : null;
  }

  /**
   * Waits for a place until `signal` aborts.
   * @returns null after an abort, or when too many wait: at once if no waiting holder without `reserved` has a larger
   * load, or later when this wait is ended in favour of a holder with a smaller load
   */
  async take(holder: Holder, signal?: AbortSignal): Promise<Place | null> {
    if (signal?.aborted) return null;
    const namedHolder = toNamedHolder(holder);
    if (this.#hasShare(namedHolder)) return this.#assign(namedHolder);
    if (this.#waiting.size >= this.#maxWaiting && !this.#evictWaiting(namedHolder)) return null;
    return new Promise((resolve) => {
      const abort = () => waiting.done(null);
      const waiting: WaitingHolder = {
        ...namedHolder,
        done: (place) => {
          this.#waiting.delete(waiting);
          signal?.removeEventListener("abort", abort);
          resolve(place);
        },
      };
      this.#waiting.add(waiting);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** Returns the largest number of places that are held under one of this holder's names. */
  heldCountOf(holder: Holder): number {
    return Math.max(0, ...namesOf(holder).map((name) => this.#heldCounts.count(name)));
  }

  /**
   * Returns true if another holder waits for a place that shares no name with this one. Returns false if none waits, or
   * only holders that share a name with it.
   */
  isWantedByOthers(holder: Holder): boolean {
    const ownNames = new Set(namesOf(holder));
    for (const { names } of this.#waiting) if (!names.some((name) => ownNames.has(name))) return true;
    return false;
  }

  /**
   * Adds a debt to this holder for failed work, measured in places. A debt counts like places that are held, and halves
   * every five minutes.
   */
  addDebt(holder: Holder, amount: number): void {
    const at = this.#now();
    for (const name of namesOf(holder)) this.#debts.set(name, { amount: this.#debt(name) + amount, at });
  }

  #debt(name: string): number {
    const debt = this.#debts.get(name);
    return debt ? debt.amount * 2 ** ((debt.at - this.#now()) / DEBT_HALF_LIFE_MS) : 0;
  }

  #load({ names }: NamedHolder): number {
    return Math.max(0, ...names.map((name) => this.#heldCounts.count(name) + this.#debt(name)));
  }

  #hasShare({ names, reserved }: NamedHolder): boolean {
    const reservedLeft = reserved ? 0 : Math.max(0, this.#reservedSize - this.#reservedTaken);
    const free = this.size - this.#takenCount - reservedLeft;
    // The debt is limited here, so that a holder with a large debt still gets a place when nobody else holds one.
    const maxDebt = this.size - this.#reservedSize - 1;
    return (
      free > 0 &&
      names.every((name) => {
        const heldCount = this.#heldCounts.count(name);
        const maxHeld = this.#maxPerName[name.slice(0, name.indexOf(" "))] ?? this.size;
        return heldCount < maxHeld && heldCount + Math.min(this.#debt(name), maxDebt) < free;
      })
    );
  }

  #addTaken({ names, reserved }: NamedHolder, step: 1 | -1): void {
    this.#heldCounts.add(names, step);
    this.#takenCount += step;
    if (reserved) this.#reservedTaken += step;
  }

  #assign(firstHolder: NamedHolder): Place {
    let current: NamedHolder | null = firstHolder;
    this.#addTaken(firstHolder, 1);
    const setHolder = (next: NamedHolder | null): void => {
      if (current) this.#addTaken(current, -1);
      current = next;
      if (next) this.#addTaken(next, 1);
    };
    return {
      leave: () => {
        if (!current) return;
        setHolder(null);
        this.#admitWaiting();
      },
      move: (holder) => {
        const [previous, next] = [current, toNamedHolder(holder)];
        setHolder(null);
        const fits = previous !== null && this.#hasShare(next);
        setHolder(fits ? next : previous);
        this.#admitWaiting();
        return fits;
      },
    };
  }

  /**
   * Gives free places to waiting holders: first to the one with the least load, and among equals to the one that waits
   * longest.
   */
  #admitWaiting(): void {
    for (;;) {
      let next: { waiting: WaitingHolder; load: number } | null = null;
      for (const one of this.#waiting) {
        const load = this.#load(one);
        if ((next === null || load < next.load) && this.#hasShare(one)) next = { waiting: one, load };
      }
      if (!next) return;
      next.waiting.done(this.#assign(next.waiting));
    }
  }

  /**
   * Makes room for one more waiting holder: among the waiting holders without `reserved`, finds the one whose places,
   * debt and waits add up to the most, and ends its newest wait. Does so only if that sum is larger than the sum of
   * `namedHolder` with one more wait.
   * @returns true if a wait was ended
   */
  #evictWaiting(namedHolder: NamedHolder): boolean {
    const waiting = new Counts();
    for (const { names } of this.#waiting) waiting.add(names, 1);
    const weightOf = (one: NamedHolder): number =>
      Math.max(0, ...one.names.map((name) => this.#heldCounts.count(name) + this.#debt(name) + waiting.count(name)));
    let largest: { waiting: WaitingHolder; weight: number } | null = null;
    for (const one of this.#waiting) {
      const ownWeight = weightOf(one);
      if (!one.reserved && (largest === null || ownWeight >= largest.weight))
        largest = { waiting: one, weight: ownWeight };
    }
    if (!largest || largest.weight <= weightOf(namedHolder) + 1) return false;
    largest.waiting.done(null);
    return true;
  }
}

const toNamedHolder = (holder: Holder): NamedHolder => ({ names: namesOf(holder), reserved: holder.reserved === true });

export interface FairQueueOptions {
  /** Name of the resource, as in {@link PlacesOptions.name}. */
  name: string;
  /** Largest number of entries. */
  size: number;
}

/**
 * A bounded collection with fair shares. While there is room, a holder may add any number of entries. When the
 * collection is full, a new entry of a holder with few entries evicts the newest entry of the holder with the most.
 */
export class FairQueue<T> {
  readonly name: string;
  readonly size: number;
  /** Names under which each entry counts. */
  readonly #holders = new Map<T, string[]>();
  /** Entries of each name, in the order in which they were added. */
  readonly #entries = new Map<string, Set<T>>();
  /** Names grouped by how many entries they have. `#largestCount` is the largest of these numbers. */
  readonly #levels = new Map<number, Set<string>>();
  #largestCount = 0;

  constructor({ name, size }: FairQueueOptions) {
    this.name = name;
    this.size = size;
  }

  get length(): number {
    return this.#holders.size;
  }

  /**
   * Returns the entry that a new entry of this holder would evict: null when there is room, undefined when the new
   * entry would be refused.
   */
  wouldEvict(holder: Holder): T | null | undefined {
    return this.length < this.size ? null : this.#evictable(namesOf(holder));
  }

  /** Adds an entry. @returns the evicted entry, null when there was room, undefined when the entry was refused */
  admit(holder: Holder, entry: T): T | null | undefined {
    const evicted = this.wouldEvict(holder);
    if (evicted === undefined) return undefined;
    if (evicted !== null) this.remove(evicted);
    const names = namesOf(holder);
    this.#holders.set(entry, names);
    for (const name of names) this.#editEntries(name, (entries) => entries.add(entry));
    return evicted;
  }

  /** Removes an entry, if it is present. */
  remove(entry: T): void {
    const names = this.#holders.get(entry) ?? [];
    this.#holders.delete(entry);
    for (const name of names) this.#editEntries(name, (entries) => entries.delete(entry));
  }

  #entryCountOf(name: string): number {
    return this.#entries.get(name)?.size ?? 0;
  }

  /**
   * Returns the entry that a new entry under `names` would evict. Of the names with the most entries it takes the first
   * that is not among `names`, and of that name the newest entry. Returns undefined if there is no such name, or if it
   * would keep fewer entries than one of `names` would have with the new entry.
   */
  #evictable(names: readonly string[]): T | undefined {
    for (const name of this.#levels.get(this.#largestCount) ?? []) {
      if (names.includes(name)) continue;
      const entry = [...this.#entries.get(name)!].at(-1)!;
      const others = names.filter((one) => !this.#holders.get(entry)!.includes(one));
      return others.length > 0 && others.every((one) => this.#entryCountOf(one) + 1 < this.#largestCount)
        ? entry
        : undefined;
    }
    return undefined;
  }

  #editEntries(name: string, edit: (entries: Set<T>) => unknown): void {
    const entries = this.#entries.get(name) ?? new Set<T>();
    this.#levels.get(entries.size)?.delete(name);
    edit(entries);
    if (entries.size > 0) this.#entries.set(name, entries);
    else this.#entries.delete(name);
    const level = this.#levels.get(entries.size) ?? new Set<string>();
    if (entries.size > 0) this.#levels.set(entries.size, level.add(name));
    this.#largestCount = Math.max(this.#largestCount, entries.size);
    while (this.#largestCount > 0 && !this.#levels.get(this.#largestCount)?.size)
      this.#levels.delete(this.#largestCount--);
  }
}
