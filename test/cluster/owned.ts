import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { runs } from "../helpers/programs.ts";
import type { ChildMessage, ChildPlace, Order } from "./owned-child.ts";

/** One process of a role. It may be killed and replaced; what it said before counts, since it was durable by then. */
interface Child {
  place: ChildPlace;
  process: ChildProcess;
  /** Partitions that it held when it last finished a round. */
  held: readonly number[];
}

/**
 * Owners and publishers as processes over one log and two stores, and the rounds that they are led through: a round is
 * over when every partition was graded at its moment and a publisher has gone through a whole turn after that.
 */
export class Owned {
  readonly #children = new Map<string, Child>();
  readonly #done = new Set<number>();
  #round: { round: number; now: string } | null = null;
  #ping = 0;
  readonly #ponged = new Set<number>();
  /** The last failures that children told: what a hang is explained with. */
  readonly failures: string[] = [];
  takeovers = 0;

  constructor(
    private readonly base: Omit<ChildPlace, "role" | "name" | "dir">,
    private readonly dir: string,
    private readonly partitions: number,
  ) {}

  start(role: ChildPlace["role"], name: string): void {
    const dir = join(this.dir, name);
    mkdirSync(dir, { recursive: true });
    const place: ChildPlace = { ...this.base, role, name, dir };
    const lines = openSync(join(this.dir, `${name}.log`), "a");
    // A group of its own, so that a kill takes everything that it started along.
    const child = spawn(process.execPath, [...runs("test/cluster/owned-child.ts"), JSON.stringify(place)], {
      stdio: ["pipe", "pipe", lines],
      detached: true,
    });
    closeSync(lines);
    child.stdin!.on("error", () => undefined);
    const own: Child = { place, process: child, held: [] };
    let rest = "";
    child.stdout!.on("data", (bytes: Buffer) => {
      const lines = (rest + bytes.toString()).split("\n");
      rest = lines.pop()!;
      for (const line of lines) {
        this.#note(`${name} ${line}`);
        this.#hear(own, JSON.parse(line) as ChildMessage);
      }
    });
    this.#note(`${name} started`);
    this.#children.set(name, own);
    if (this.#round) this.#tell(own, this.#round);
  }

  /** One more owner, which others give partitions to. Resolves when it has graded them. */
  async joins(name: string): Promise<void> {
    this.start("owner", name);
    const graded = () => this.#children.get(name)!.held.length > 0;
    await this.#until(`${name} has graded`, graded);
  }

  names(role: ChildPlace["role"]): string[] {
    return [...this.#children.values()].filter(({ place }) => place.role === role).map(({ place }) => place.name);
  }

  signal(name: string, signal: "SIGSTOP" | "SIGCONT"): void {
    this.#note(`${name} ${signal}`);
    process.kill(-this.#children.get(name)!.process.pid!, signal);
  }

  /** SIGKILL of the process group. @returns the partitions that it held when it last finished a round */
  async kill(name: string): Promise<readonly number[]> {
    const { process: child, held } = this.#children.get(name)!;
    this.#children.delete(name);
    this.#note(`${name} SIGKILL`);
    const gone = new Promise((resolve) => child.once("exit", resolve));
    process.kill(-child.pid!, "SIGKILL");
    await gone;
    return held;
  }

  /** Lead everybody through a round at this moment; `meanwhile` may kill and start whom it likes. */
  async round(n: number, now: Date, meanwhile: () => Promise<void> = async () => {}): Promise<void> {
    this.#done.clear();
    this.#round = { round: n, now: now.toISOString() };
    this.#note(`round ${n} at ${this.#round.now}`);
    for (const child of this.#children.values()) this.#tell(child, this.#round);
    const disturbed = meanwhile();
    await this.#until(`round ${n} is graded`, () => this.#done.size === this.partitions);
    await disturbed;
    // Twice: what owners say after the first turn (evidence of days that it closed) is named by the second.
    for (let turn = 0; turn < 2; turn++) await this.published();
  }

  /** Resolves when a publisher has gone through a whole turn that began after this call. */
  async published(): Promise<void> {
    const ping = ++this.#ping;
    await this.#until(
      `turn ${ping} is published`,
      () => {
        if (this.#ponged.has(ping)) return true;
        return false;
      },
      () => this.#all({ ping }),
    );
  }

  async stop(): Promise<Map<string, readonly number[]>> {
    const held = new Map<string, readonly number[]>();
    for (const name of [...this.#children.keys()]) held.set(name, await this.kill(name));
    return held;
  }

  /** One line of what was done and said, in the order that it was heard in. */
  #note(line: string): void {
    appendFileSync(join(this.dir, "heard.log"), `${new Date().toISOString()} ${line}\n`);
  }

  #hear(child: Child, said: ChildMessage): void {
    if ("failed" in said) this.failures.push(`${child.place.name}: ${said.failed.slice(0, 200)}`);
    if (this.failures.length > 50) this.failures.shift();
    if ("active" in said && said.active) this.takeovers++;
    if ("pong" in said) this.#ponged.add(said.pong);
    if ("done" in said) {
      child.held = said.held;
      if (said.done === this.#round?.round) for (const partition of said.held) this.#done.add(partition);
    }
  }

  #all(order: Order): void {
    for (const child of this.#children.values()) this.#tell(child, order);
  }

  #tell({ process: child }: Child, order: Order): void {
    child.stdin!.write(`${JSON.stringify(order)}\n`);
  }

  /** Waits, saying `again` every few seconds to whoever has come since; the bound is only reached by a hang. */
  async #until(what: string, holds: () => boolean, again: () => void = () => undefined): Promise<void> {
    for (let n = 0; n < 24_000; n++) {
      if (holds()) return;
      if (n % 40 === 0) again();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`never: ${what}; last failures:\n${this.failures.slice(-10).join("\n")}`);
  }
}
