import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { EvidenceDraft } from "../../pipelines/4-publish/filings.ts";
import { failuresOf } from "../../serving/answers/failures.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { FailuresAnswer } from "../../serving/schemas/trust.ts";
import { PaidRows } from "../../serving/tables/paid-rows.ts";
import { publishEvidence } from "../helpers/evidence-files.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";
import {
  capOf,
  followup,
  intent,
  NOTHING,
  published,
  result,
  SHA,
  settlement,
  urlOf,
} from "../pipelines/2-ingest/records.ts";

/** A day is a file of evidence: what came later about a call of the day before is in the next one. */
const at = (day: number, time: string): string => `2026-11-${day}T${time}.000Z`;
const check = (name: string, says?: string) => ({ name, ok: false, ...(says ? { says } : {}) });

const THIEF = { url: urlOf("thief") };
const CALLS = {
  fine: intent("thief", at(17, "01:00:00")),
  taken: intent("thief", at(17, "02:00:00")),
  wrong: intent("thief", at(17, "23:59:00"), { input: "known_answer" }),
  ours: intent("thief", at(18, "03:00:00")),
  withdrawn: intent("thief", at(18, "04:00:00")),
  refunded: intent("thief", at(18, "05:00:00")),
  unpaid: intent("thief", at(19, "06:00:00")),
  other: intent("thief", at(19, "07:00:00")),
};
const id = (call: keyof typeof CALLS): string => CALLS[call].eventId;
const SOLD = published("thief", at(19, "08:00:00"), 1, {
  ...{
    pass: false,
    delivered: true,
    delivery: 0,
    status: 500,
    tx: "0xsold",
    checks: [check("schema", "/ must be object")],
  },
});
const UNSURE = published("thief", at(19, "08:30:00"), 2, { pass: false, status: 500 });
const end = (call: keyof typeof CALLS, time: string, over = {}) => result("thief", id(call), time, over);
const settled = (call: keyof typeof CALLS, time: string) =>
  settlement("thief", id(call), time, { tx: `0x${call}`.padEnd(66, "0") });
const shown = (call: keyof typeof CALLS, time: string) =>
  followup("thief", id(call), time, {
    kind: "shown_again",
    shown_again: { at: time, watched: true, ended: "closed", ...NOTHING },
  } as never);
const RECORDS = [
  ...[CALLS.fine, settled("fine", at(17, "01:00:02")), end("fine", at(17, "01:00:03"))],
  ...[
    CALLS.taken,
    settled("taken", at(17, "02:00:02")),
    end("taken", at(17, "02:00:03"), { ...NOTHING, ended: "deadline" }),
  ],
  ...[shown("taken", at(17, "02:00:09")), CALLS.wrong, settled("wrong", at(17, "23:59:40"))],
  // It ends on the next day: the line of its own day knows no answer.
  end("wrong", at(18, "00:00:01"), { delivery: 1, outcome: 0, checks: [check("truth", "scored 0")], schema_ok: true }),
  ...[CALLS.ours, end("ours", at(18, "03:00:03"), { ...NOTHING, fault: "ours" })],
  ...[CALLS.withdrawn, settled("withdrawn", at(18, "04:00:02")), end("withdrawn", at(18, "04:00:03"), { delivery: 0 })],
  ...[CALLS.refunded, settled("refunded", at(18, "05:00:02")), end("refunded", at(18, "05:00:03"), NOTHING)],
  ...[shown("refunded", at(18, "05:00:09")), CALLS.unpaid],
  end("unpaid", at(19, "06:00:05"), { ...NOTHING, checks: [check("bytes_came", "transport: no answer: ECONNRESET")] }),
  ...[CALLS.other, settled("other", at(19, "07:00:02"))],
  end("other", at(19, "07:00:03"), { honest: false, differs: [{ defect: "price_differs", says: "it asks more <b>" }] }),
  followup("thief", id("refunded"), at(19, "07:30:00"), {
    kind: "refund",
    refund: { tx: "0xback", amount_atomic: "20000" },
  } as never),
  ...[SOLD, UNSURE],
  followup("thief", SOLD.eventId, at(19, "09:00:00"), { kind: "reproduced" }),
];

let record: PublicRecord;
let serving: TestServing;
let files: EvidenceDraft[];
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    [listingDraft(THIEF)],
    [listingDraft({ url: urlOf("fresh") })],
    record.grades([cardOf(THIEF, { band: "F" })], "F: it took the money."),
    [
      {
        ...{ kind: "correction" as const, capability_id: capOf("thief") },
        body: { id: "rec_c", record_id: id("withdrawn"), fault: "ours", says: "x", issued_at: at(19, "00:00:00") },
      },
    ],
  );
  files = await publishEvidence(record, RECORDS);
  await record.live([rowOf(THIEF)]);
  serving = await servingOver(record);
});
afterAll(() => record.close());

const path = (query = "", cap = capOf("thief")): string => `/v1/trust/${cap}/failures${query}`;
async function pageOf(query = "", cap?: string): Promise<FailuresAnswer> {
  const response = await serving.get(path(query, cap));
  expect(response.status).toBe(200);
  return FailuresAnswer.parse(await response.json());
}

const ALL = [SOLD.eventId, id("other"), id("unpaid"), id("refunded"), id("wrong"), id("taken")];

describe("GET /v1/trust/{id}/failures", () => {
  test("the failed paid calls, newest first: none of our fault, none withdrawn, none that is not confirmed", async () => {
    const { failures, next, evidence_until, left_out } = await pageOf();
    expect(failures.map((one) => one.id)).toEqual(ALL);
    expect([next, evidence_until, left_out]).toEqual([null, "2026-11-19", []]);
    expect(failures.map(({ says }) => says)).toEqual([
      "It took 0.02 and its answer failed: schema.",
      "It took 0.02 on other terms than it had named.",
      "Nothing came back, and the payment never settled.",
      "Nothing came back, and 0.02 was paid back.",
      "It took 0.02 and its answer failed: truth.",
      "It took 0.02 and nothing came back.",
    ]);
    expect(failures.map(({ expected, came }) => [expected, came])).toEqual([
      ["an answer of its advertised schema", "/ must be object"],
      ["the terms of its listing and its 402", "status 200; it asks more <b>"],
      ["an answer before the deadline", "transport: no answer: ECONNRESET"],
      ["an answer before the deadline", "nothing"],
      ["the known answer to what was asked", "status 200; another answer (scored 0)"],
      ["an answer before the deadline", "nothing"],
    ]);
  });

  test("each with its transaction, its hashes whole, and the files that say so", async () => {
    const { failures } = await pageOf();
    const [sold, , unpaid, refunded, wrong, taken] = failures;
    expect(sold).toMatchObject({ paid_by: "a_buyer", tx: "0xsold", status: 500, response_sha256: SHA });
    expect(unpaid).toMatchObject({ paid_by: "us", tx: null, network: "eip155:8453", price: "0.020000" });
    expect(taken).toMatchObject({ tx: `0xtaken${"0".repeat(59)}`, at: at(17, "02:00:00"), refunded: false });
    const [first, second, third] = files.map(({ key }) => `https://touchstone.test/${key}`);
    expect([taken!.evidence, wrong!.evidence]).toEqual([[first], [first, second]]);
    expect([refunded!.evidence, refunded!.refunded]).toEqual([[second, third], true]);
  });

  test("a cursor goes on where a page ended, whatever its length", async () => {
    for (const limit of [1, 2, 5, 6]) {
      const seen: string[] = [];
      let cursor = "";
      for (let pages = 0; pages < 10; pages++) {
        const { failures, next } = await pageOf(`?limit=${limit}${cursor}`);
        expect(failures.length).toBeLessThanOrEqual(limit);
        seen.push(...failures.map((one) => one.id));
        if (next === null) break;
        cursor = `&cursor=${next}`;
      }
      expect([limit, seen]).toEqual([limit, ALL]);
    }
  });

  test("an endpoint without evidence has none; an unknown one and a wrong cursor are told", async () => {
    expect(await pageOf("", capOf("fresh"))).toMatchObject({ failures: [], next: null });
    const statusOf = async (at: string) => (await serving.get(at)).status;
    expect(await statusOf(path("", `cap_${"0".repeat(26)}`))).toBe(404);
    for (const query of [
      "?cursor=x",
      "?limit=0",
      "?limit=101",
      "?limit=0x10",
      "?limit=1e0",
      "?limit=1.0",
      "?limit=%201",
      "?cursor=1-rec_x",
    ]) {
      expect([query, await statusOf(path(query))]).toEqual([query, 400]);
    }
  });

  test("its command prints the lines", async () => {
    const live: Serving = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 200 });
    try {
      const { failures } = await pageOf();
      const { reproduce, id: of } = failures[4]!;
      const command = reproduce.replaceAll("https://touchstone.test", live.url);
      const { stdout } = await promisify(execFile)("sh", ["-c", command]);
      const lines = stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Record<string, unknown>);
      expect(lines.length).toBeGreaterThan(2);
      expect(new Set(lines.map((line) => line.obs_id ?? line.of))).toEqual(new Set([of]));
    } finally {
      await live.close();
    }
  });
});

describe("what is read of the evidence is bounded", () => {
  const view = () => serving.follower.view;
  const asked = { limit: 20, maxBytes: 1e6, baseUrl: "https://touchstone.test" };

  test("a page ends where it may read no more, and the next one gets further", async () => {
    const paid = new PaidRows(record.store);
    const first = await failuresOf(view(), capOf("thief"), paid, { ...asked, maxFiles: 1 });
    expect(first.failures.map((one) => one.id)).toEqual(ALL.slice(0, 3));
    const cursor = first.next!;
    const second = await failuresOf(view(), capOf("thief"), paid, { ...asked, cursor, maxFiles: 1 });
    expect(second.failures.map((one) => one.id)).toEqual([id("refunded")]);
    // A cursor of yesterday at a process that holds nothing yet.
    const cold = new PaidRows(record.store);
    const far = { ...asked, cursor: second.next!, maxFiles: 1 };
    await expect(failuresOf(view(), capOf("thief"), cold, far)).rejects.toThrow("older evidence is being read");
    await expect(failuresOf(view(), capOf("thief"), cold, far)).rejects.toThrow("older evidence is being read");
    const third = await failuresOf(view(), capOf("thief"), cold, far);
    expect([third.failures.map((one) => one.id), third.next]).toEqual([[id("wrong"), id("taken")], null]);
  });

  test("each file is read once, and dropped when what is held is too much", async () => {
    let reads = 0;
    const get = (key: string, options?: { maxBytes: number }) => {
      reads++;
      return record.store.get(key, options);
    };
    const store = { get };
    const bounds = { maxFileBytes: 1e6, maxUnpackedBytes: 1e6, maxCachedBytes: 1e6, maxWaiting: 9 };
    const paid = new PaidRows(store as never, bounds);
    await Promise.all([1, 2].map(() => failuresOf(view(), capOf("thief"), paid, { ...asked, maxFiles: 9 })));
    await failuresOf(view(), capOf("thief"), paid, { ...asked, maxFiles: 0 });
    expect(reads).toBe(3);
    const tight = new PaidRows(store as never, { ...bounds, maxCachedBytes: 1 });
    await failuresOf(view(), capOf("thief"), tight, { ...asked, maxFiles: 9 });
    await failuresOf(view(), capOf("thief"), tight, { ...asked, maxFiles: 9 });
    expect(reads).toBe(9);
  });

  test("a file that is too long is named and not read", async () => {
    const bounds = { maxFileBytes: 1e6, maxUnpackedBytes: 1, maxCachedBytes: 1e6, maxWaiting: 9 };
    const page = await failuresOf(view(), capOf("thief"), new PaidRows(record.store, bounds), {
      ...asked,
      maxFiles: 9,
    });
    expect([page.failures, page.left_out]).toEqual([[], files.map(({ key }) => key).reverse()]);
  });

  test("bytes that are not those of the leaf are not believed", async () => {
    const get = async (key: string) => ({
      ...(await record.store.get(key, { maxBytes: 1e6 }))!,
      bytes: Buffer.from("x"),
    });
    const bad = await servingOver(record, { store: { ...record.store, get } as never });
    const response = await bad.get(path());
    expect([response.status, response.headers.get("retry-after")]).toEqual([503, "5"]);
    const page = await bad.get(`/endpoint/${capOf("thief")}`);
    expect([page.status, (await page.text()).includes("call by call")]).toEqual([200, false]);
  });
});

describe("the page of the endpoint", () => {
  test("shows the newest five, each linked to its evidence on this host, and escapes what came", async () => {
    const html = await (await serving.get(`/endpoint/${capOf("thief")}`)).text();
    const [, section] = /<section aria-labelledby="calls"[^>]*>(.*?)<\/section>/s.exec(html)!;
    const shownIds = [...section!.matchAll(/<code>(rec_[^<]+)<\/code>/g)].map(([, one]) => one);
    expect(shownIds).toEqual(ALL.slice(0, 5));
    expect(section).toContain("it asks more &lt;b&gt;");
    expect(section).toContain(`<a href="/${files[1]!.key}">2026-11-18</a>`);
    expect(section).toContain(`<code>0xwrong${"0".repeat(59)}</code> on eip155:8453`);
    expect(section).toContain(`href="/v1/trust/${capOf("thief")}/failures"`);
  });
});
