import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compress, decompress } from "zstd-napi";
import { canonicalText, sha256hex } from "../../../infra/canonical.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { MissingObject } from "../../../infra/tree/tiles.ts";
import type { CardVerdict } from "../../../pipelines/audit/recompute.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { DirectorySource, type Source } from "../../../pipelines/published/source.ts";
import type { EvidenceLeaf, GradeLeaf } from "../../../pipelines/record/leaf.ts";
import {
  capOf,
  correction,
  dispute,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  PAY_TO,
  reinstated,
  result,
  settlement,
  urlOf,
} from "../2-ingest/records.ts";
import { ArchiveWorld } from "../5-archive/world.ts";

/**
 * A market of a few sellers over two weeks, graded in the middle of calls and at the end of days; one of them takes the
 * money, two share its payTo or its domain, one is corrected and reinstated, one disputes. Every card must come out.
 */
let world: ArchiveWorld;
const DAYS = 16;
const day = (n: number) => new Date(Date.UTC(2026, 9, 5 + n)).toISOString().slice(0, 10);
const onDay = (n: number, time: string) => `${day(n)}T${time}.000Z`;
const THIEF_PAY_TO = "0x9999999999999999999999999999999999999999";

const SELLERS = ["good", "thief", "partner", "flaky", "corrected", "disputed"];
const payToOf = (name: string) => (name === "thief" || name === "partner" ? THIEF_PAY_TO : PAY_TO);

/** The calls of one seller on one day, up to the moment at which the payment has left. */
function begun(name: string, n: number): { records: NewRecord[]; ended: NewRecord[] } {
  const pay_to = payToOf(name);
  const T = onDay(n, "20:00:00");
  const quote = intent(name, T);
  const body = JSON.parse(Buffer.from(quote.value).toString()).body as { quote: object };
  const paid = intent(name, T, { input: "known_answer", quote: { ...body.quote, pay_to } as never });
  const bad = name === "thief" ? n % 3 === 0 : name === "flaky" && n % 4 === 1;
  const came = bad ? NOTHING : { outcome: 1, latency_ms: 300 + 10 * n };
  return {
    records: [
      handshake(name, onDay(n, "02:10:00"), { pay_to }),
      handshake(name, onDay(n, "14:20:00"), { pay_to, price: name === "flaky" && n > 9 ? "0.021000" : "0.020000" }),
      paid,
    ],
    ended: [
      result(name, paid.eventId, later(T, 3_000), came),
      settlement(name, paid.eventId, later(T, 4_000)),
      ...(bad
        ? [
            followup(name, paid.eventId, later(T, 90_000), {
              kind: "shown_again",
              shown_again: { ...NOTHING, watched: true },
            }),
          ]
        : []),
    ],
  };
}

async function live(n: number): Promise<void> {
  const { ingest } = world;
  const days = SELLERS.map((name) => begun(name, n));
  await ingest.append(...days.flatMap(({ records }) => records));
  // Some of the payments have left and nothing has come yet: such a row is ours for the moment.
  if (n % 2 === 0) await world.grade(onDay(n, "20:00:01"));
  await ingest.append(...days.flatMap(({ ended }) => ended));
  if (n === 9)
    await ingest.append(correction("corrected", onDay(n, "21:00:00")), dispute("disputed", onDay(n, "21:00:00")));
  if (n === 12) await ingest.append(reinstated("corrected", onDay(n, "21:00:00"), "c1"));
  await world.grade(onDay(n, "23:59:59"));
  if (n % 5 === 4) await world.closeDays(onDay(n, "23:59:59"));
}

beforeAll(async () => {
  world = await ArchiveWorld.open();
  await world.ingest.append(...SELLERS.map((name) => listing(name, onDay(0, "00:00:00"), { seller_controlled: true })));
  for (let n = 0; n < DAYS; n++) await live(n);
});
afterAll(() => world.close());

const summary = (cards: readonly CardVerdict[]) =>
  cards.filter(({ verdict }) => verdict !== "ok").map(({ says, difference, leaf }) => ({ leaf, says, difference }));

/** The same public store with one object as a test wants it. */
const showing = (shown: Map<string, Uint8Array | null>): Source => {
  const inner = new DirectorySource(world.publicDir);
  return {
    name: "shown",
    get: async (key, maxBytes) => (shown.has(key) ? shown.get(key)! : inner.get(key, maxBytes)),
    close: async () => undefined,
  };
};

describe("before the last days are closed", () => {
  test("their cards are pending, the others come out", async () => {
    const { done, cards } = await world.recompute();
    expect(done).toMatchObject({ differs: 0, endpoints: SELLERS.length, closed_to: day(13) });
    expect(done.ok).toBeGreaterThan(50);
    expect(done.pending).toBeGreaterThan(0);
    for (const { verdict, computed_at } of cards) {
      if (computed_at! > onDay(14, "00:00:00")) expect(verdict).toBe("pending");
    }
  });
});

describe("once all days are closed", () => {
  let evidence: EvidenceLeaf[];
  let grades: GradeLeaf[];
  beforeAll(async () => {
    await world.closeDays(onDay(DAYS, "06:00:00"));
    const { leaves } = await world.prove();
    evidence = leaves.filter((leaf): leaf is EvidenceLeaf => leaf.kind === "evidence");
    grades = leaves.filter((leaf): leaf is GradeLeaf => leaf.kind === "grade");
  });

  test("every card of every endpoint comes out, byte for byte", async () => {
    const { done, cards } = await world.recompute();
    expect(summary(cards)).toEqual([]);
    expect(done).toMatchObject({ pending: 0, differs: 0, ok: grades.length });
  });

  test("and they are of every kind that a record has", () => {
    const flags = new Set(grades.flatMap(({ card }) => card.flags));
    const wanted = ["took_the_money", "money_pending", "payee_took_the_money", "disputed"];
    expect([...flags]).toEqual(expect.arrayContaining(wanted));
    expect(grades.some(({ why }) => why.includes("every record it stood on was withdrawn"))).toBe(true);
    expect(new Set(grades.map(({ inputs }) => inputs.kin)).size).toBeGreaterThan(1);
  });

  test("one endpoint is found by its id and by its url", async () => {
    const byCap = await world.recompute({ cap: capOf("thief") });
    const byUrl = await world.recompute({ url: `${urlOf("thief")}#part` });
    expect(byUrl.cards).toEqual(byCap.cards);
    expect(byCap.cards.length).toBe(grades.filter(({ card }) => card.capability_id === capOf("thief")).length);
    expect((await world.recompute({ cap: capOf("nobody") })).cards).toEqual([]);
  });

  const rowsOf = (name: string) => evidence.find((leaf) => leaf.holds === "rows" && bucketHas(leaf, name))!;
  const bucketHas = (leaf: EvidenceLeaf, name: string) =>
    leaf.bucket === Buffer.from(sha256hex(capOf(name)), "hex")[0]! >> 2;

  test.each<[string, (bytes: Buffer) => Buffer | null, new (...all: never[]) => Error]>([
    ["missing", () => null, MissingObject],
    ["cut off", (bytes) => bytes.subarray(0, -3), Unproven],
    ["with one bit flipped", (bytes) => Buffer.from(bytes.map((byte, i) => (i === 40 ? byte ^ 1 : byte))), Unproven],
  ])("a file %s is found", async (_, change, fault) => {
    const { key } = rowsOf("good");
    const bytes = Buffer.from((await world.publicStore.get(key!))!.bytes);
    await expect(world.recompute("all", showing(new Map([[key!, change(bytes)]])))).rejects.toThrow(fault);
  });

  /** The record as it would be had the publisher filed other lines, with leaves that name them: only recomputing tells. */
  async function forged(name: string, change: (line: Record<string, unknown>) => Record<string, unknown> | null) {
    const other = await ArchiveWorld.copy(world, async (leaf, text) => {
      if (!bucketHas(leaf, name)) return text;
      const lines = text
        .trimEnd()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
      const kept = lines.map((line) => (line.capability_id === capOf(name) ? change(line) : line));
      return kept
        .filter((line) => line !== null)
        .map((line) => `${canonicalText(line)}\n`)
        .join("");
    });
    try {
      return await other.recompute({ cap: capOf(name) });
    } finally {
      await other.close();
    }
  }

  /** The first paid row, or the first that brought nothing. */
  const first = (change: (line: Record<string, unknown>) => object, bad = false) => {
    let done = false;
    return (line: Record<string, unknown>) => {
      if (done || line.kind !== 1 || (bad && line.delivered)) return line;
      done = true;
      return { ...line, ...change(line) };
    };
  };
  test.each<[string, (line: Record<string, unknown>) => Record<string, unknown> | null, string]>([
    ["a call that was made good", first(() => ({ delivered: true, delivery: 1, outcome: 1 }), true), "inputs.digest"],
    [
      "a call quicker than it was",
      first(({ latency_ms }) => ({ latency_ms: Number(latency_ms) - 1 })),
      "inputs.digest",
    ],
    ["another answer behind it", first(() => ({ response_sha256: "cd".repeat(32) })), "card.evidence_sample.0"],
    [
      "a handshake left out",
      (line) => (String(line.t).startsWith(day(3)) && line.kind === 0 ? null : line),
      "inputs.digest",
    ],
    [
      "a row known earlier than it was",
      first(({ first, before: _ }) => ({ position: first, before: undefined })),
      "tiers",
    ],
  ])("evidence that tells of %s shows in the cards", async (_, change, field) => {
    const { done, cards } = await forged("flaky", change);
    expect(done.differs).toBeGreaterThan(0);
    expect(cards.find(({ verdict }) => verdict === "differs")!.difference!.field).toBe(field);
  });
});

test("the tool loads no database", async () => {
  const root = resolve(import.meta.dirname, "../../..");
  const loaded = async (module: string) => {
    const script = `await import(${JSON.stringify(resolve(root, module))});
      process.stdout.write(JSON.stringify(process.report.getReport().sharedObjects));`;
    const args = ["--import", "tsx", "--input-type=module", "-e", script];
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, maxBuffer: 1 << 24 });
    return (JSON.parse(stdout) as string[]).filter((path) => /duckdb|better_sqlite3/.test(path));
  };
  expect(await loaded("commands/recompute.ts")).toEqual([]);
  expect((await loaded("infra/lake/duckdb.ts")).length).toBeGreaterThan(0);
});

test("a kin file that leads to another table than it says is refused", async () => {
  const { leaves } = await world.prove();
  const file = leaves.find((leaf): leaf is EvidenceLeaf => leaf.kind === "evidence" && leaf.holds === "kin")!;
  const { readRelatedPartyTables } = await import("../../../pipelines/audit/recompute.ts");
  const text = decompress((await world.publicStore.get(file.key!))!.bytes)
    .toString("utf8")
    .replace('"add":[{', '"add":[{"x":1,');
  expect((await readRelatedPartyTables(new DirectorySource(world.publicDir), [file as never])).size).toBeGreaterThan(1);
  const lie = text.replace(/"pay_to":"0x9/, '"pay_to":"0x8');
  const packed = compress(Buffer.from(lie));
  const leaf = {
    ...file,
    ...{ sha256: sha256hex(packed), bytes: packed.length, unpacked_sha256: sha256hex(lie), unpacked_bytes: lie.length },
  };
  await expect(readRelatedPartyTables(showing(new Map([[file.key!, packed]])), [leaf as never])).rejects.toThrow(
    Unproven,
  );
});
