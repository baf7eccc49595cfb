import { BoundedMap } from "./bounded-map.ts";

/**
 * Fair shares of resources that untrusted clients compete for. A request counts under each of its names: its payer, its
 * client network, and the domain that it makes this process contact. Under none of them does it get so much that a request
 * with fewer holdings gets nothing. {@link Places} are held for a while and cannot be taken back; a {@link FairQueue} holds
 * entries that can be evicted.
 */
export interface Holder {
  /** Address of the wallet that pays. */
  payer?: string | undefined;
  /** Key of the client network. */
  client?: string | undefined;
  /** Registrable domain that is contacted; a platform with many subdomains counts as one. */
  domain?: string | undefined;
  /** Whether it may use the reserved places: it pays, or is trusted for another reason. */
  reserved?: boolean;
}

type Dimension = "payer" | "client" | "domain";
const DIMENSIONS: readonly Dimension[] = ["payer", "client", "domain"];

const namesOf = (holder: Holder): string[] =>
  DIMENSIONS.flatMap((dimension) => (holder[dimension] === undefined ? [] : [`${dimension} ${holder[dimension]}`]));

/** Counts by name; names with a count of zero are forgotten. */
class Counts {
  readonly #counts = new Map<string, number>();

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(names: readonly string[], by: 1 | -1): void {
    for (const name of names) {
      const count = this.of(name) + by;
      if (count > 0) this.#counts.set(name, count);
      else this.#counts.delete(name);
    }
  }
}

/** Number of names whose debts are remembered; the one charged longest ago is forgotten first. */
const MAX_DEBTORS = 10_000;
/** Half-life of a debt, ms. */
const HALF_MS = 300_000;

export interface PlacesOptions {
  /** Name of the resource, for messages and for the list of all resources (test/shares.test.ts). */
  name: string;
  size: number;
  /** Number of places that only holders with `reserved` get. */
  kept?: number;
  /** Fixed limits of what one name may hold, in addition to its share. */
  most?: Partial<Record<Dimension, number>>;
  /** Most holders that wait for a place (default 1,024). */
  waiting?: number;
  /** Returns milliseconds of a steady counter. */
  now?: () => number;
}

/** A place that is held. */
export interface Place {
  /** Releases the place; further calls have no effect. */
  leave(): void;
  /** Counts the place under another holder. @returns false when that holder has no share left; then nothing changed */
  move(holder: Holder): boolean;
}

interface Held {
  names: string[];
  reserved: boolean;
}

interface Waiting extends Held {
  /** @param place null when the wait ended without a place */
  done(place: Place | null): void;
}

/**
 * A semaphore with fair shares. A holder gets a place when, under each of its names, it holds less than is free: one holder
 * alone can have half of all places, two a third each, and n of them leave 1/(n+1) for the next (dynamic thresholds;
 * Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Places are never taken back, so this rule keeps some
 * of them free. Among those that wait, the one with the least load goes first, where load is the places held plus the debt
 * of failed work ({@link Places.remember}). When too many wait, one of the holder with the largest load is refused.
 */
export class Places {
  readonly name: string;
  readonly size: number;
  readonly #kept: number;
  readonly #most: Partial<Record<string, number>>;
  readonly #maxWaiting: number;
  readonly #now: () => number;
  readonly #held = new Counts();
  readonly #waiting = new Set<Waiting>();
  readonly #debts = new BoundedMap<string, { amount: number; at: number }>(MAX_DEBTORS);
  #taken = 0;
  #reserved = 0;

  /** @throws RangeError when no unreserved place would be left */
  constructor({ name, size, kept = 0, most = {}, waiting = 1_024, now = () => performance.now() }: PlacesOptions) {
    if (size < 1 || kept >= size) throw new RangeError(`${name}: ${kept} of ${size} places are kept, none is left`);
    this.name = name;
    this.size = size;
    this.#kept = kept;
    this.#most = most;
    this.#maxWaiting = waiting;
    this.#now = now;
  }

  /** Number of places that are held. */
  get taken(): number {
    return this.#taken;
  }

  /** Returns a place, or null when there is none for this holder now. */
  tryTake(holder: Holder): Place | null {
    const held = heldBy(holder);
    return this.#fits(held) ? this.#give(held) : null;
  }

  /** Waits for a place until `signal` aborts. @returns null when it aborted, or too many wait and this holder has most */
  async take(holder: Holder, signal?: AbortSignal): Promise<Place | null> {
    if (signal?.aborted) return null;
    const held = heldBy(holder);
    if (this.#fits(held)) return this.#give(held);
    if (this.#waiting.size >= this.#maxWaiting && !this.#shedFor(held)) return null;
    return new Promise((resolve) => {
      const off = () => waiting.done(null);
      const waiting: Waiting = {
        ...held,
        done: (place) => {
          this.#waiting.delete(waiting);
          signal?.removeEventListener("abort", off);
          resolve(place);
        },
      };
      this.#waiting.add(waiting);
      signal?.addEventListener("abort", off, { once: true });
    });
  }

  /** Returns the largest number of places that are held under one of this holder's names. */
  heldBy(holder: Holder): number {
    return Math.max(0, ...namesOf(holder).map((name) => this.#held.of(name)));
  }

  /** Reports whether a holder waits that has no name in common with this one. */
  isWantedBeside(holder: Holder): boolean {
    const own = new Set(namesOf(holder));
    for (const { names } of this.#waiting) if (!names.some((name) => own.has(name))) return true;
    return false;
  }

  /**
   * Adds a debt for failed work of this holder, in places. A debt counts like places that are held, and halves every five
   * minutes.
   */
  remember(holder: Holder, amount: number): void {
    const at = this.#now();
    for (const name of namesOf(holder)) this.#debts.set(name, { amount: this.#debt(name) + amount, at });
  }

  #debt(name: string): number {
    const debt = this.#debts.get(name);
    return debt ? debt.amount * 2 ** ((debt.at - this.#now()) / HALF_MS) : 0;
  }

  #load({ names }: Held): number {
    return Math.max(0, ...names.map((name) => this.#held.of(name) + this.#debt(name)));
  }

  #fits({ names, reserved }: Held): boolean {
    const kept = reserved ? 0 : Math.max(0, this.#kept - this.#reserved);
    const free = this.size - this.#taken - kept;
    // A debt is capped so that a holder with any debt still gets a place when no other holder has one.
    const deepest = this.size - this.#kept - 1;
    return (
      free > 0 &&
      names.every((name) => {
        const held = this.#held.of(name);
        const most = this.#most[name.slice(0, name.indexOf(" "))] ?? this.size;
        return held < most && held + Math.min(this.#debt(name), deepest) < free;
      })
    );
  }

  #count({ names, reserved }: Held, by: 1 | -1): void {
    this.#held.add(names, by);
    this.#taken += by;
    if (reserved) this.#reserved += by;
  }

  #give(first: Held): Place {
    let held: Held | null = first;
    this.#count(first, 1);
    const change = (next: Held | null): void => {
      if (held) this.#count(held, -1);
      held = next;
      if (next) this.#count(next, 1);
    };
    return {
      leave: () => {
        if (!held) return;
        change(null);
        this.#serve();
      },
      move: (holder) => {
        const [before, next] = [held, heldBy(holder)];
        change(null);
        const fits = before !== null && this.#fits(next);
        change(fits ? next : before);
        this.#serve();
        return fits;
      },
    };
  }

  /** Gives free places to waiting holders, the one with the least load first, then the one that waits longest. */
  #serve(): void {
    for (;;) {
      let next: { one: Waiting; load: number } | null = null;
      for (const one of this.#waiting) {
        const load = this.#load(one);
        if ((next === null || load < next.load) && this.#fits(one)) next = { one, load };
      }
      if (!next) return;
      next.one.done(this.#give(next.one));
    }
  }

  /** Refuses the newest waiting entry of the holder with the largest load, if that exceeds `held`'s. @returns whether one was */
  #shedFor(held: Held): boolean {
    const waiting = new Counts();
    for (const { names } of this.#waiting) waiting.add(names, 1);
    const weight = (one: Held): number =>
      Math.max(0, ...one.names.map((name) => this.#held.of(name) + this.#debt(name) + waiting.of(name)));
    let most: { one: Waiting; weight: number } | null = null;
    for (const one of this.#waiting) {
      const own = weight(one);
      if (!one.reserved && (most === null || own >= most.weight)) most = { one, weight: own };
    }
    if (!most || most.weight <= weight(held) + 1) return false;
    most.one.done(null);
    return true;
  }
}

const heldBy = (holder: Holder): Held => ({ names: namesOf(holder), reserved: holder.reserved === true });

export interface FairQueueOptions {
  /** As {@link PlacesOptions.name}. */
  name: string;
  size: number;
}

/**
 * A bounded collection with fair shares. While there is room a holder may have any number of entries. When it is full, an
 * entry of a holder with fewer entries evicts the newest entry of the holder with most.
 */
export class FairQueue<T> {
  readonly name: string;
  readonly size: number;
  readonly #holders = new Map<T, string[]>();
  /** Entries of each name, in the order in which they came. */
  readonly #entries = new Map<string, Set<T>>();
  /** Names by how many entries they have, and the largest such number. */
  readonly #levels = new Map<number, Set<string>>();
  #top = 0;

  constructor({ name, size }: FairQueueOptions) {
    this.name = name;
    this.size = size;
  }

  get length(): number {
    return this.#holders.size;
  }

  /** Returns the entry that a new one of this holder would evict: null when there is room, undefined when it is refused. */
  wouldEvict(holder: Holder): T | null | undefined {
    return this.length < this.size ? null : this.#evictable(namesOf(holder));
  }

  /** Adds an entry. @returns the evicted entry, null when there was room, undefined when the entry was refused */
  admit(holder: Holder, entry: T): T | null | undefined {
    const out = this.wouldEvict(holder);
    if (out === undefined) return undefined;
    if (out !== null) this.remove(out);
    const names = namesOf(holder);
    this.#holders.set(entry, names);
    for (const name of names) this.#change(name, (entries) => entries.add(entry));
    return out;
  }

  /** Removes an entry, if it is present. */
  remove(entry: T): void {
    const names = this.#holders.get(entry) ?? [];
    this.#holders.delete(entry);
    for (const name of names) this.#change(name, (entries) => entries.delete(entry));
  }

  #sizeOf(name: string): number {
    return this.#entries.get(name)?.size ?? 0;
  }

  /** Returns the newest entry of the name with most entries, if its loss still leaves that name at least as many as `names`. */
  #evictable(names: readonly string[]): T | undefined {
    for (const name of this.#levels.get(this.#top) ?? []) {
      if (names.includes(name)) continue;
      const entry = [...this.#entries.get(name)!].at(-1)!;
      const others = names.filter((one) => !this.#holders.get(entry)!.includes(one));
      return others.length > 0 && others.every((one) => this.#sizeOf(one) + 1 < this.#top) ? entry : undefined;
    }
    return undefined;
  }

  #change(name: string, edit: (entries: Set<T>) => unknown): void {
    const entries = this.#entries.get(name) ?? new Set<T>();
    this.#levels.get(entries.size)?.delete(name);
    edit(entries);
    if (entries.size > 0) this.#entries.set(name, entries);
    else this.#entries.delete(name);
    const level = this.#levels.get(entries.size) ?? new Set<string>();
    if (entries.size > 0) this.#levels.set(entries.size, level.add(name));
    this.#top = Math.max(this.#top, entries.size);
    while (this.#top > 0 && !this.#levels.get(this.#top)?.size) this.#levels.delete(this.#top--);
  }
}
