import { BoundedMap } from "./bounded-map.ts";

/**
 * Resources that strangers share, and the one rule by which they do: whoever asks counts under each of its names (its
 * payer, its client network, the domain it sends us to), and under none of them it gets so much that somebody with less
 * is left without. {@link Places} are held for a while and cannot be taken back; {@link FairQueue}s hold entries, which can.
 */
export interface Holder {
  payer?: string | undefined;
  /** The network that it comes from. */
  client?: string | undefined;
  /** Whom it has us reach, by what such a name costs: platforms count as one. */
  domain?: string | undefined;
  /** It may have what is kept: it pays, or it is known for another reason. */
  reserved?: boolean;
}

type Dimension = "payer" | "client" | "domain";
const DIMENSIONS: readonly Dimension[] = ["payer", "client", "domain"];

const namesOf = (holder: Holder): string[] =>
  DIMENSIONS.flatMap((dimension) => (holder[dimension] === undefined ? [] : [`${dimension} ${holder[dimension]}`]));

/** How many of something each name has; names with nothing are forgotten. */
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

/** Names whose debts are remembered; the one charged longest ago is forgotten first. */
const MAX_DEBTORS = 10_000;
/** Half of a debt is forgotten in so long, ms. */
const HALF_MS = 300_000;

export interface PlacesOptions {
  /** Names the resource in the list of all of them (test/shares.test.ts). */
  name: string;
  size: number;
  /** Places that only holders with `reserved` get. */
  kept?: number;
  /** Most that one name may hold, on top of what the rule says. */
  most?: Partial<Record<Dimension, number>>;
  /** Most that wait for a place (default 1,024). */
  waiting?: number;
  /** A steady counter, ms. */
  now?: () => number;
}

export interface Place {
  /** Gives it back; a second time does nothing. */
  leave(): void;
  /** Has it count under other names from now on. @returns false, and nothing changed, where those have no share left */
  move(holder: Holder): boolean;
}

interface Held {
  names: string[];
  reserved: boolean;
}

interface Waiting extends Held {
  /** @param place null: it is refused, for somebody who holds less */
  done(place: Place | null): void;
}

/**
 * Places of which so many are held at once. A place is given to whoever holds less, under each of its names, than is
 * free: one holder alone can have half of all, two a third each, and n of them leave 1/(n+1) to the next one (dynamic
 * thresholds; Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). Places that are held are never taken
 * back, so this is what keeps some free. Of those that wait the one that holds least goes first, with the debt of work of
 * its that failed ({@link Places.remember}); where too many wait, one of whoever has most is refused.
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

  /** @throws RangeError where nobody could ever have a place */
  constructor({ name, size, kept = 0, most = {}, waiting = 1_024, now = () => performance.now() }: PlacesOptions) {
    if (size < 1 || kept >= size) throw new RangeError(`${name}: ${kept} of ${size} places are kept, none is left`);
    this.name = name;
    this.size = size;
    this.#kept = kept;
    this.#most = most;
    this.#maxWaiting = waiting;
    this.#now = now;
  }

  /** Places that are held. */
  get taken(): number {
    return this.#taken;
  }

  /** The place, if there is one for this holder at this moment. */
  tryTake(holder: Holder): Place | null {
    const held = heldBy(holder);
    return this.#fits(held) ? this.#give(held) : null;
  }

  /** Waits for a place until `signal` aborts. @returns null: it aborted, or too many wait and this holder has most */
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

  /** The most that this holder has under one of its names. */
  heldBy(holder: Holder): number {
    return Math.max(0, ...namesOf(holder).map((name) => this.#held.of(name)));
  }

  /** Does somebody wait that has no name in common with this holder? */
  isWantedBeside(holder: Holder): boolean {
    const own = new Set(namesOf(holder));
    for (const { names } of this.#waiting) if (!names.some((name) => own.has(name))) return true;
    return false;
  }

  /** Work of this holder failed and cost so many places' worth: it counts as if it were held, and is forgotten by halves. */
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
    // Whoever is deep in debt gets a place at last where nobody else holds one.
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

  /** Gives what is free to those that wait, the one with the least load first, and of equals the one that came first. */
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

  /** Refuses the newest that waits of whoever has most, where that is more than what `held` has. @returns was one refused? */
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
 * Entries of which so many are kept at once. While there is room everybody may have any number of them; when it is full,
 * whoever has fewer pushes out the newest entry of whoever has most, until all have the same.
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

  /** What would have to go for an entry of this holder: null where there is room, undefined where nothing may. */
  wouldEvict(holder: Holder): T | null | undefined {
    return this.length < this.size ? null : this.#evictable(namesOf(holder));
  }

  /** Takes the entry in. @returns what went for it, or null; undefined: it was not taken, since nobody has more */
  admit(holder: Holder, entry: T): T | null | undefined {
    const out = this.wouldEvict(holder);
    if (out === undefined) return undefined;
    if (out !== null) this.remove(out);
    const names = namesOf(holder);
    this.#holders.set(entry, names);
    for (const name of names) this.#change(name, (entries) => entries.add(entry));
    return out;
  }

  /** Has no effect for what is not in it. */
  remove(entry: T): void {
    const names = this.#holders.get(entry) ?? [];
    this.#holders.delete(entry);
    for (const name of names) this.#change(name, (entries) => entries.delete(entry));
  }

  #sizeOf(name: string): number {
    return this.#entries.get(name)?.size ?? 0;
  }

  /** The newest entry of a name that has most: its owner then has no fewer than whoever comes, under any name of theirs. */
  #evictable(names: readonly string[]): T | undefined {
    for (const name of this.#levels.get(this.#top) ?? []) {
      if (names.includes(name)) continue;
      const entry = [...this.#entries.get(name)!].at(-1)!;
      const others = names.filter((one) => !this.#holders.get(entry)!.includes(one));
      return others.length > 0 && others.every((one) => this.#sizeOf(one) + 1 < this.#top) ? entry : undefined;
    }
    return undefined;
  }

  #change(name: string, how: (entries: Set<T>) => unknown): void {
    const entries = this.#entries.get(name) ?? new Set<T>();
    this.#levels.get(entries.size)?.delete(name);
    how(entries);
    if (entries.size > 0) this.#entries.set(name, entries);
    else this.#entries.delete(name);
    const level = this.#levels.get(entries.size) ?? new Set<string>();
    if (entries.size > 0) this.#levels.set(entries.size, level.add(name));
    this.#top = Math.max(this.#top, entries.size);
    while (this.#top > 0 && !this.#levels.get(this.#top)?.size) this.#levels.delete(this.#top--);
  }
}
