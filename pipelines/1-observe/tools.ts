import type { BoundedMap } from "../../infra/bounded-map.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { ClassQuestions } from "./classes/asking.ts";
import type { FirstIntents } from "./first-intents.ts";
import type { Hosts } from "./hosts.ts";
import type { Intake } from "./listings/intake.ts";
import type { Ledger } from "./plan/spend.ts";
import type { Control, ExchangeDeps } from "./probe/exchange.ts";
import type { Recorder } from "./recorder.ts";

/** What the functions that make calls need. */
export interface Tools extends ExchangeDeps {
  rail: Rail;
  wallets: Wallets;
  control: Control;
  /** Makes control calls from the address that a blind call uses, since that address may be down while others work. */
  controlFrom(stock: string): Control;
  recorder: Recorder;
  intake: Intake;
  /** Classes of endpoints, and the questions whose answers we know. */
  asking: ClassQuestions;
  ledger: Ledger;
  /** Hosts that are this observer's to call. */
  hosts: Hosts;
  /** Where several observers share the work: whose intent was first. Null where this observer works alone. */
  firsts: Pick<FirstIntents, "isFirst"> | null;
  /** Key of the known answers. It is secret: with it a seller could predict our questions. */
  secret: Uint8Array;
  /** Pauses (real ms) between looks at the chain after a paid call; reconcile.ts finds what settles later. */
  settlePollMs: readonly number[];
  /** Is a repeated request to this endpoint due (paid/retry.ts)? If true, the call marks it as made. */
  retries: { take(cap: string, now: Date): Promise<boolean> };
  /** Event ids of intents whose call is running in this process. */
  inFlight: Set<string>;
  /** `cap sha256` of requests that passed before. If such a request fails later, the input is not to blame. */
  passed: BoundedMap<string, true>;
  logger: Logger;
  metrics: Metrics;
  signal?: AbortSignal | undefined;
}
