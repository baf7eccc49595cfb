import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { rfc3339 } from "../record/time.ts";

/** What a control call said. */
export type ControlSeen = {
  url: string;
  ok: boolean;
  at: string;
};

/** Failures that come together share one control call, if it is not older than this (real ms): the same minute. */
const FRESH_MS = 5_000;

/**
 * A call to an address that we know to be up: when that fails too, the fault is ours and not the seller's
 * (grading-method.md section 1). Without an address to call nothing is ever excused.
 */
export class Control {
  #last: { at: number; ok: Promise<boolean> } | null = null;

  constructor(
    private readonly egress: Egress,
    private readonly url: string | null,
  ) {}

  async call(clock: Clock): Promise<ControlSeen | null> {
    if (this.url === null) return null;
    const now = clock.monotonic();
    if (!this.#last || now - this.#last.at > FRESH_MS) this.#last = { at: now, ok: this.#ask(this.url) };
    const ok = await this.#last.ok;
    return { url: this.url, ok, at: rfc3339(clock.now()) };
  }

  async #ask(url: string): Promise<boolean> {
    const result = await this.egress.fetch({ url, method: "GET", profile: "control" });
    return result.outcome === "answered" && result.status < 500;
  }
}
