import type { BoundedMap } from "../../infra/bounded-map.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { Asking } from "./classes/asking.ts";
import type { FirstIntents } from "./first-intents.ts";
import type { Hosts } from "./hosts.ts";
import type { Intake } from "./listings/intake.ts";
import type { Ledger } from "./plan/spend.ts";
import type { Control, Means } from "./probe/exchange.ts";
import type { Recorder } from "./recorder.ts";

/** What every call works with. */
export interface Tools extends Means {
  rail: Rail;
  wallets: Wallets;
  control: Control;
  /** The same from the address that a blind call leaves from: that one may be gone while all others are there. */
  controlFrom(stock: string): Control;
  recorder: Recorder;
  intake: Intake;
  /** Classes of endpoints, and the questions whose answers we know. */
  asking: Asking;
  ledger: Ledger;
  /** Hosts that are this observer's to call. */
  hosts: Hosts;
  /** Where several observers share the work: whose intent was first. Null: there is nobody else. */
  firsts: Pick<FirstIntents, "won"> | null;
  /** Key of the known answers: whoever has it knows our questions beforehand. */
  secret: Uint8Array;
  /** Pauses (real ms) between looks at the chain after a paid call; reconcile.ts sees what comes later. */
  settlePollMs: readonly number[];
  /** Whose answer to a retry is to be looked at: true takes its turn (paid/retry.ts). */
  retries: { take(cap: string, now: Date): Promise<boolean> };
  /** Intents whose call is under way in this process. */
  inFlight: Set<string>;
  /** `cap sha256` of requests that passed: such an input is no bad one when it fails later. */
  passed: BoundedMap<string, true>;
  logger: Logger;
  metrics: Metrics;
  signal?: AbortSignal | undefined;
}
