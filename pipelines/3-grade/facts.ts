import { counts, said } from "./own.ts";

/** Where sql/34_packed.sql puts the facts of a row in one number, below its time. */
export const PACKED = {
  kind: 1,
  live: 1 << 2,
  settled: 1 << 3,
  delivered: 1 << 4,
  refunded: 1 << 5,
  honest: 1 << 6,
  schema: 1 << 8,
  example: 1 << 10,
  blocked: 1 << 11,
  bad_input: 2 << 11,
  unconfirmed: 3 << 11,
  fault: 4 << 11,
} as const;
/** A window's milliseconds times this stay far below 2^53. */
export const PACKED_SCALE = 1 << 14;
/** What a row says of each part, a bit each. */
export const SAID = {
  counted: 1,
  own: 1 << 1,
  unconfirmed: 1 << 2,
  paid: 1 << 3,
  wall: 1 << 4,
  answered: 1 << 5,
  honest: 1 << 6,
  dishonest: 1 << 7,
  settled: 1 << 8,
  refunded: 1 << 9,
  delivered: 1 << 10,
  example: 1 << 11,
  fits: 1 << 12,
  misfits: 1 << 13,
  timed: 1 << 14,
} as const;

const FAULTS = [null, "blocked", "bad_input", "unconfirmed"];
const known = (value: number): boolean | null => (value > 1 ? null : value === 1);

/** Bits of SAID for a row of these facts: own.ts decides, as it does for whoever grades without a database. */
function saidBy(facts: number): number {
  const at = (place: number, width: number) => Math.floor(facts / place) % width;
  const kind = at(PACKED.kind, 4);
  const fault = at(PACKED.blocked, 8);
  const example = at(PACKED.example, 2) === 1;
  const row = {
    kind,
    fault: fault < FAULTS.length ? FAULTS[fault]! : "another",
    live: at(PACKED.live, 2) === 1,
    honest: known(at(PACKED.honest, 4)),
    settled: at(PACKED.settled, 2) === 1,
    delivered: at(PACKED.delivered, 2) === 1,
    refunded: at(PACKED.refunded, 2) === 1,
    schema_ok: known(at(PACKED.schema, 4)),
    ...{ obs_id: "", t: new Date(0), payer: null, input: null, response_sha256: null, pay_to: null },
    ...{ w: 1, delivery: 1, outcome: 1, latency_ms: 1, price: 1 },
  };
  const { paid, wall, answered, honest, delivered, schema_ok, ms } = said(row, kind === 1);
  const says: Record<keyof typeof SAID, boolean> = {
    ...{ paid, wall, answered, delivered, example, settled: row.settled, refunded: row.refunded, timed: ms !== null },
    counted: counts(row),
    own: counts(row) && kind < 2,
    unconfirmed: kind === 2 && row.fault === "unconfirmed",
    honest: honest === true,
    dishonest: honest === false,
    fits: schema_ok === true,
    misfits: schema_ok === false,
  };
  return (Object.keys(SAID) as (keyof typeof SAID)[]).reduce((bits, key) => bits + (says[key] ? SAID[key] : 0), 0);
}

/** The same for all that can be packed. */
export const SAID_BY = Uint16Array.from({ length: PACKED_SCALE }, (_, facts) => saidBy(facts));
