import type { Lake } from "../../infra/lake/duckdb.ts";

/** This process was killed: nothing of it goes on. */
export class Dead extends Error {
  override name = "Dead";
}
/** A call that failed, or one that was done and whose answer was lost. */
export class Broken extends Error {
  override name = "Broken";
}

type When = "before" | "after";

/**
 * What happens to the calls of one process on its log, stores and lake: it dies at one of them, it stops at one and goes
 * on when told (a machine that was paused), or some of them fail, before they did anything or after they did all.
 */
export class Lever {
  /** Calls so far. */
  calls = 0;
  #dead = false;
  #death: { at: number; when: When } | null = null;
  #stop: { at: number; when: When; asleep: () => void; awake: Promise<void> } | null = null;
  #weather: { until: number; fails: () => When | null } | null = null;

  /** SIGKILL at the n-th call from now. */
  dieAt(n: number, when: When): void {
    this.#death = { at: this.calls + n, when };
  }

  /** Sleep at the n-th call from now. `asleep` resolves when it does; `wake` lets it go on. */
  sleepAt(n: number, when: When): { asleep: Promise<void>; wake: () => void } {
    let wake: () => void = () => undefined;
    let asleep: () => void = () => undefined;
    const awake = new Promise<void>((done) => {
      wake = done;
    });
    const sleeping = new Promise<void>((done) => {
      asleep = done;
    });
    this.#stop = { at: this.calls + n, when, asleep, awake };
    return { asleep: sleeping, wake };
  }

  /** For the next calls: does this one fail, and how? Reads fail before. */
  storm(calls: number, fails: () => When | null): void {
    this.#weather = { until: this.calls + calls, fails };
  }

  clear(): void {
    this.#weather = null;
    this.#death = null;
    this.#stop = null;
  }

  kill(): void {
    this.#dead = true;
  }

  async through<T>(work: () => Promise<T>, breaks = true): Promise<T> {
    const n = this.calls++;
    const fault = breaks && this.#weather && n < this.#weather.until ? this.#weather.fails() : null;
    await this.#meet(n, "before");
    if (fault === "before") throw new Broken("before");
    const done = await work();
    await this.#meet(n, "after");
    if (fault === "after") throw new Broken("after");
    return done;
  }

  async #meet(n: number, when: When): Promise<void> {
    if (this.#death?.at === n && this.#death.when === when) this.#dead = true;
    if (this.#stop?.at === n && this.#stop.when === when) {
      const { asleep, awake } = this.#stop;
      asleep();
      await awake;
    }
    if (this.#dead) throw new Dead("killed");
  }

  /** A log or a store of this process. */
  over<T extends object>(part: T): T {
    return new Proxy(part, {
      get: (target, name) => {
        const member = Reflect.get(target, name, target) as unknown;
        if (typeof member !== "function") return member;
        if (name === "close") return member.bind(target);
        return (...args: unknown[]) => this.through(async () => (await member.apply(target, args)) as unknown);
      },
    });
  }

  /** Its lake: the process may die before a transaction, inside of it (which rolls it back), or after it. */
  overLake(lake: Lake): Lake {
    return new Proxy(lake, {
      get: (target, name) => {
        const member = Reflect.get(target, name, target) as unknown;
        if (typeof member !== "function") return member;
        if (name !== "transaction") return member.bind(target);
        const transaction: Lake["transaction"] = (work, stage) =>
          this.through(() => target.transaction((tx) => this.through(() => work(tx), false), stage), false);
        return transaction;
      },
    });
  }
}
