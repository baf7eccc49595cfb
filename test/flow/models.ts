import { PAST_DAYS } from "../../commands/simulated-past.ts";
import { verdictOf } from "../../fixtures/market/sellers/flaky.ts";
import { priceAfter } from "../../fixtures/market/sellers/price-creeper.ts";
import { PROBE as ANSWERED, PAID as DELIVERED, type Row } from "../pipelines/3-grade/rows.ts";

export type { Row };

const DAYS = PAST_DAYS;

/** What a seller does, as the observer would record it: a free probe, or a planned payment. */
export interface Behaviour {
  probe(): Row;
  /** The first leg asks for the terms as a probe does; then it is paid, where there is something to pay. */
  pay(blind: boolean): Row;
}

export interface Model {
  name: string;
  days: number;
  open(): Behaviour;
}

const PROBE: Row = { ...ANSWERED, latency_ms: 20 };
const PAID: Row = { ...DELIVERED, latency_ms: 20 };
const NOTHING: Row = { ...PAID, delivered: false, delivery: null, outcome: 0, schema_ok: null };
const ERROR_PAGE: Row = { ...NOTHING, settled: false };

/** `ask(n)` is what the n-th asking for terms changes of a row, and null what it takes away; `sell(n)` a payment's. */
interface Particular {
  ask?(n: number): Partial<Row>;
  sell?(n: number, blind: boolean): Partial<Row>;
}

const model = (name: string, days: number, { ask = () => ({}), sell = () => ({}) }: Particular = {}): Model => ({
  name,
  days,
  open() {
    let asked = 0;
    let paid = 0;
    return {
      probe: () => ({ ...PROBE, ...ask(asked++) }),
      pay(blind) {
        const terms = ask(asked++);
        // A wall or silence instead of terms: nothing is paid, and the row is one without payment.
        if (terms.fault || terms.live === false) return { ...PROBE, ...terms };
        // The time of a paid row is the paid leg's own.
        return { ...PAID, ...terms, latency_ms: PAID.latency_ms, ...sell(paid++, blind) };
      },
    };
  },
});

const priced = (price: number): Partial<Row> => ({ price });

/** Every seller of the market in a few words, each with the turns of its own program. */
export const MODELS: readonly Model[] = [
  model("honest-v2", DAYS),
  model("honest-v1", DAYS, { sell: () => ({ outcome: null, input: "example" }) }),
  model("slow", DAYS, { ask: (n) => ({ latency_ms: n % 8 === 7 ? 480 : 30 }) }),
  model("flaky", DAYS, {
    sell: (n) => ({ right: {}, wrong: { outcome: 0 }, error: ERROR_PAGE })[verdictOf(n)],
  }),
  model("liar", DAYS, { sell: () => ({ outcome: 0 }) }),
  model("thief", DAYS, { sell: () => NOTHING }),
  model("price-mover", DAYS, { ask: (n) => priced([0.01, 0.02, 0.03][Math.floor(n / 10) % 3]!) }),
  model("dead", DAYS, { ask: () => ({ live: false, latency_ms: null, price: null, honest: null, pay_to: null }) }),
  model("v2-in-body", 12),
  model("schema-breaker", 12, { sell: (n) => ({ schema_ok: n % 3 === 0 }) }),
  model("pay-to-changer", 12, {
    ask: (n) => ([2, 6].includes(n % 9) ? { honest: false, pay_to: "0xbb" } : {}),
  }),
  model("wildcard", 4, {
    sell: () => ({ delivery: 0, outcome: null, schema_ok: null, input: "synthetic" }),
  }),
  model("wall-when-down", 12, {
    ask: (n) => (n % 12 >= 10 ? { fault: "blocked", live: true, honest: null, price: null, pay_to: null } : {}),
  }),
  model("regulars-only", DAYS, { sell: (_, blind) => (blind ? ERROR_PAGE : {}) }),
  model("price-creeper", 14, { ask: (n) => priced(Number(priceAfter(Math.floor(n / 6))) / 1e6) }),
  model("free-for-all", 12, { sell: () => ({ outcome: null, schema_ok: null, input: "synthetic" }) }),
  model("refunder", 12, { sell: (n) => (n % 8 === 7 ? { ...NOTHING, refunded: true } : {}) }),
  model("mpp", 12),
  model("both", 12),
  model("mcp-paid", DAYS),
  model("dear", DAYS),
  model("dearer", 12),
  model("capitals", 12, { sell: () => ({ outcome: null }) }),
  // The first call by a mapping of ours is a control input.
  model("encoder", DAYS, { sell: (n) => (n === 0 ? { fault: "ours" } : {}) }),
  ...["scraper", "chain-reader", "parrot"].map((name) => model(name, DAYS)),
  ...["wrong-encoder", "stale-scraper"].map((name) => model(name, 12, { sell: () => ({ outcome: 0 }) })),
  model("tempo", 12),
];
