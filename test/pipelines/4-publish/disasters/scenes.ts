import { compress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../../infra/canonical.ts";
import type { Publisher } from "../../../../pipelines/4-publish/publisher.ts";
import { writeRun } from "../../../../pipelines/4-publish/runs.ts";
import { evidenceKey } from "../../../../pipelines/published/objects.ts";
import { tokenOf } from "../../../helpers/prove-record.ts";
import { publishListings } from "../../../helpers/publishing.ts";
import { capOf, cardToken, correction, header, JWKS, line, listing, rotated } from "../world.ts";
import type { Machine } from "./machine.ts";

/** A piece of a publisher's work, and what it comes to. All of it may be done again, by anybody. */
export interface Scene {
  /** What the log holds before. */
  prepare(machine: Machine): Promise<void>;
  /** What goes wrong. */
  work(publisher: Publisher): Promise<void>;
  /** Tokens of everything that was put in. */
  putIn: string[];
}

const listings = (prefix: string, n: number) => Array.from({ length: n }, (_, i) => listing(`${prefix}-${i}`));
const tokens = (prefix: string, n: number) =>
  listings(prefix, n).map((facts) => tokenOf({ kind: "listing", ...facts }));

const FIRST = "2026-11-21T01:00:00.000Z";
const SECOND = "2026-11-21T03:00:00.000Z";
const LIVENESS = { band: "UNRATED", tier: "LIVENESS_VERIFIED" } as const;

const firstOfAll: Scene = {
  async prepare() {},
  work: (publisher) => publisher.publishKeys(JWKS),
  putIn: [],
};

const edgeOfATile: Scene = {
  async prepare(machine) {
    const { publisher } = machine.publisher("before");
    await publisher.publishKeys(JWKS);
    await publishListings(publisher, listings("known", 250));
  },
  async work(publisher) {
    await publishListings(publisher, listings("new", 8));
  },
  putIn: [...tokens("known", 250), ...tokens("new", 8)],
};

/** Two runs, the second behind a correction; a delisting; the index of it all, which rides along with a schedule. */
const runsAndIndex: Scene = {
  async prepare(machine) {
    const { publisher } = machine.publisher("before");
    await publisher.publishKeys(JWKS);
    await publishListings(publisher, listings("known", 3));
    const lines = [line("known-0", FIRST, ["A", LIVENESS]), line("known-1", FIRST, ["B"])];
    await writeRun(machine.privateStore, header(FIRST, 5), lines);
    const less = [line("known-0", SECOND, ["C"], "less rows")];
    await writeRun(machine.privateStore, header(SECOND, 9), less, -1, [correction("known-0", "c1")]);
  },
  async work(publisher) {
    await publishListings(publisher, listings("new", 2), [capOf("known-2")]);
    await publisher.takeNewRuns();
    await publisher.buildIndex();
    await publisher.publishSchedule({ day: "2026-11-22", salt_hash: "00", covered_root: "00", covered: 2 });
  },
  putIn: [
    cardToken("known-0", FIRST),
    cardToken("known-0", FIRST, "LIVENESS_VERIFIED"),
    cardToken("known-1", FIRST),
    cardToken("known-0", SECOND),
    tokenOf(correction("known-0", "c1")),
    "schedule 2026-11-22 ",
    `delisting ${capOf("known-2")}`,
    ...tokens("known", 3),
    ...tokens("new", 2),
  ],
};

const DAY = "2026-11-20";
const ROWS = { "observations.free": 5 };

/** The evidence of a day: one row of one endpoint. */
function evidenceFile() {
  const cap = capOf("known-0");
  const bucket = Buffer.from(sha256hex(cap), "hex")[0]! >> 2;
  const row = {
    obs_id: "rec_1",
    capability_id: cap,
    topic: "observations.free",
    position: 1,
    t: `${DAY}T01:00:00.000Z`,
  };
  const text = `${canonicalText(row)}\n`;
  const unpacked = sha256hex(text);
  return { bucket, text, unpacked, packed: compress(Buffer.from(text)), key: evidenceKey(DAY, bucket, unpacked) };
}

/** A day is closed and its evidence named; then the keys change. */
const evidenceAndKeys: Scene = {
  async prepare(machine) {
    const { publisher } = machine.publisher("before");
    await publisher.publishKeys(JWKS);
    await publishListings(publisher, listings("known", 1));
  },
  async work(publisher) {
    const { bucket, text, unpacked, packed, key } = evidenceFile();
    const bytes = await publisher.putEvidence(key, packed);
    const file = { key, sha256: sha256hex(bytes), bytes: bytes.length, unpacked_sha256: unpacked };
    const freeze = {
      kind: "evidence",
      day: DAY,
      freeze: 0,
      part: 1,
      parts: 1,
      holds: "rows",
      bucket,
      rows: 1,
    } as const;
    const draft = { ...freeze, positions: ROWS, below: null, ...file, unpacked_bytes: Buffer.byteLength(text) };
    await publisher.publishDayCloses([{ day: DAY, close: 0, drafts: [draft] }]);
    await publisher.publishKeys(rotated("2026-11-21T04:00:00.000Z"));
  },
  putIn: [...tokens("known", 1), `evidence ${DAY} 0 1`],
};

const POSITIONS = { "observations.free": { "0": 5 } };

/** What serving follows: tables, the view that names them, history; and the collection of files that nobody names any more. */
const liveAndGarbage: Scene = {
  async prepare(machine) {
    const { publisher } = machine.publisher("before");
    await publisher.publishKeys(JWKS);
    for (const part of [1, 250, 10]) await publishListings(publisher, listings(`known-${part}`, part));
  },
  async work(publisher) {
    const table = await publisher.writeLiveTable(0, Buffer.from("table"));
    await publisher.writeView({ live: [table], positions: POSITIONS });
    const history = await publisher.writeHistory(3, Buffer.from("history"));
    await publisher.nameHistory({ files: { "3": history }, positions: POSITIONS });
    await publisher.refreshCheckpoint();
    await publisher.collectGarbage();
  },
  putIn: [1, 250, 10].flatMap((part) => tokens(`known-${part}`, part)),
};

export const SCENES: Readonly<Record<string, Scene>> = {
  firstOfAll,
  edgeOfATile,
  runsAndIndex,
  evidenceAndKeys,
  liveAndGarbage,
};
