import type { LapseProgress } from "../../pipelines/lapse.ts";

/** Progress on stderr, so that stdout stays for what the command prints: one line rewritten on a terminal, else lines. */
export class Progress {
  readonly #tty = process.stderr.isTTY === true;
  #open = false;
  #knocks = 0;
  #paid = 0;
  #cards = 0;

  constructor(private readonly shown: boolean) {}

  say(text: string): void {
    if (!this.shown) return;
    this.end();
    process.stderr.write(`${text}\n`);
  }

  day({ day, n, of, observed, paid, cards }: LapseProgress): void {
    this.#knocks += observed;
    this.#paid += paid;
    this.#cards += cards;
    if (!this.shown) return;
    const text = `day ${n} of ${of} (${day}): ${this.#knocks} knocks, ${this.#paid} payments, ${this.#cards} cards signed`;
    if (this.#tty) process.stderr.write(`\r\x1b[K${text}`);
    else if (n % 5 === 0 || n === of) process.stderr.write(`${text}\n`);
    this.#open = this.#tty;
  }

  /** Leave the line that is being rewritten. */
  end(): void {
    if (this.#open) process.stderr.write("\n");
    this.#open = false;
  }
}
