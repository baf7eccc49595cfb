import type { BoundedMap } from "../../infra/bounded-map.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { ClassQuestions } from "./classes/asking.ts";
import type { FirstIntents } from "./first-intents.ts";
import type { Hosts } from "./hosts.ts";
import type { Intake } from "./listings/intake.ts";
import type { PaymentForm } from "./mcp/answers.ts";
import type { Ledger } from "./plan/spend.ts";
import type { ControlCalls, ExchangeDeps } from "./probe/exchange.ts";
import type { Recorder } from "./recorder.ts";

/** The dependencies of the functions that make calls. */
export interface Tools extends ExchangeDeps {
  rail: Rail;
  wallets: Wallets;
  /** Makes control calls: requests to addresses that we know to be up, to find out whether a failure is our own. */
  control: ControlCalls;
  /**
   * Makes control calls (requests to addresses that we know to be up) through the connection of the stock client
   * (probe/stock.ts) that a blind call uses, since that connection has its own source IP address, which may be down
   * while others work.
   */
  createControl(stock: string): ControlCalls;
  recorder: Recorder;
  intake: Intake;
  /** Determines the classes of endpoints, and makes the questions whose answers we know. */
  questions: ClassQuestions;
  ledger: Ledger;
  /** The hosts that this observer may call. */
  hosts: Hosts;
  /**
   * Decides whose intent (the record that is written before a payment) was first when several observers share the
   * work; null for a single observer.
   */
  firstIntents: Pick<FirstIntents, "isFirst"> | null;
  /** Secret key from which questions with known answers are drawn. With it a seller could predict them. */
  secret: Uint8Array;
  /**
   * Pauses between searches for the settlement after a paid call, real ms. Later settlements are found by
   * paid/reconcile.ts.
   */
  settlePollMs: readonly number[];
  /**
   * `takeDue` returns true if the payment proof of a call may be sent to this endpoint once more (paid/retry.ts), and
   * then marks that as done.
   */
  retries: { takeDue(cap: string, now: Date): Promise<boolean> };
  /** Event ids of intents whose call is running in this process. */
  inFlight: Set<string>;
  /** Requests that passed before, as `<cap> <sha256>`. If such a request fails later, its input is not to blame. */
  passedInputs: BoundedMap<string, true>;
  /**
   * The form in which MCP tools took the payment of a known call, by capability id. A blind call is sent in this form:
   * it tries no second one.
   */
  paymentForms: BoundedMap<string, PaymentForm>;
  logger: Logger;
  metrics: Metrics;
  /** Aborted when the observer is stopped. */
  signal?: AbortSignal | undefined;
}
