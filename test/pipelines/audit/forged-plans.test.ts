import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { ScheduleAudit } from "../../../pipelines/audit/schedules.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { SampleLine } from "../../../pipelines/record/evidence.ts";
import { blockOf, dayStart } from "../../../pipelines/record/time.ts";
import { CAP, ForgedRecord, findingOf, paidLine } from "./forged.ts";

/** Calls that a publisher made at will, and the plan that it shows for them afterwards. */
const DAY = "2026-10-05";
const BLOCK = 2;
const MINUTE = 67;
const ROOT = "00".repeat(32);
const CALLS = "calls against the opened plan";
const SALTS = "salts of days, opened";

/** The salt with the lowest number whose plan has a call by a blind wallet in this block and minute. */
function fittingSalt(): string {
  for (let n = 0; ; n++) {
    const salt = sha256hex(`salt ${n}`);
    const plan = createHmac("sha256", Buffer.from(salt, "hex")).update(CAP).digest();
    if (((plan[8]! << 8) | plan[9]!) % 360 === MINUTE && plan[2 + BLOCK]! < 64) return salt;
  }
}
const FITS = fittingSalt();
const ANOTHER = "01".repeat(32);

const call = (more: Partial<SampleLine> = {}): SampleLine => {
  const t = new Date(dayStart(DAY).getTime() + (BLOCK * 360 + MINUTE) * 60_000).toISOString();
  const slot = `${blockOf(dayStart(DAY)) + BLOCK}/${MINUTE}`;
  return { ...paidLine(0), t, slot, blind: true, retest: false, ...more };
};

const schedule = (at: string, day: string, salt: string, opens?: string) => ({
  ...{ kind: "schedule", at, day, salt_hash: sha256hex(Buffer.from(salt, "hex")), covered_root: ROOT, covered: 1 },
  ...(opens ? { opens: { day: DAY, salt: opens } } : {}),
});

/** The evidence of the day after these schedules: the salt of the next day's leaf opens the day. */
async function audited(schedules: ReturnType<typeof schedule>[], line: SampleLine, opens = FITS) {
  const record = new ForgedRecord();
  for (const leaf of schedules) record.add(leaf);
  record.add(schedule("2026-10-06T03:00:00.000Z", "2026-10-06", ANOTHER, opens));
  await record.close(DAY, "2026-10-06T06:00:00.000Z", [line]);
  await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
  return record.audit();
}
const EVENING = "2026-10-04T22:00:00.000Z";

describe("a plan that is shown for calls made at will", () => {
  test("and one that was committed to before its day, twice with one hash, is proven", async () => {
    const committed = [schedule(EVENING, DAY, FITS), schedule("2026-10-05T00:00:10.000Z", DAY, FITS)];
    const report = await audited(committed, call());
    expect([findingOf(report, SALTS), findingOf(report, CALLS)]).toMatchObject([{ result: "ok" }, { result: "ok" }]);
    expect([report.proven, findingOf(report, CALLS).checked]).toEqual([true, 1]);
  });

  test("under a salt that was chosen after the day: its hash is not the day's first", async () => {
    const committed = [schedule(EVENING, DAY, ANOTHER), schedule("2026-10-06T02:00:00.000Z", DAY, FITS)];
    const report = await audited(committed, call());
    expect([report.proven, findingOf(report, SALTS).result]).toEqual([false, "broken"]);
    const hashes = [ANOTHER, FITS].map((salt) => sha256hex(Buffer.from(salt, "hex")));
    expect(findingOf(report, "leaves").problems).toEqual([
      { key: "leaf 2", expected: `the hash of the salt of ${DAY}, ${hashes[0]}`, got: hashes[1] },
    ]);
    expect(findingOf(await audited(committed, call(), ANOTHER), CALLS).result).toBe("broken");
  });

  test.each([
    ["after the day", "2026-10-06T02:00:00.000Z"],
    ["six minutes after the call", "2026-10-05T13:13:00.000Z"],
  ])("under a salt whose hash was first published %s", async (_, at) => {
    const report = await audited([schedule(at, DAY, FITS)], call());
    expect([report.proven, findingOf(report, CALLS).problems]).toEqual([
      false,
      [expect.objectContaining({ expected: expect.stringContaining(at), got: call().t })],
    ]);
  });

  test("by a clock that is minutes behind the publisher's is none", async () => {
    const report = await audited([schedule("2026-10-05T13:11:00.000Z", DAY, FITS)], call());
    expect(findingOf(report, CALLS)).toMatchObject({ result: "ok", checked: 1 });
  });

  test.each<[string, string, number]>([
    ["a minute after its own", "2026-10-05T13:08:00.000Z", 1],
    ["late in its block", "2026-10-05T17:59:59.999Z", 1],
    ["five minutes before its own, by a clock that was set", "2026-10-05T13:02:00.000Z", 1],
    ["hours before its own", "2026-10-05T09:07:00.000Z", 0],
    ["in a later block", "2026-10-05T18:07:00.000Z", 0],
  ])("a call whose time is %s is proven, or open, and never broken", async (_, t, checked) => {
    const report = await audited([schedule(EVENING, DAY, FITS)], call({ t }));
    const { result, ...counts } = findingOf(report, CALLS);
    expect([report.proven, result, counts.checked, counts.open]).toEqual([true, "ok", checked, 1 - checked]);
    if (checked === 0)
      expect(counts.says).toBe(
        `${call().obs_id} of ${CAP}: its time ${t} is before its planned minute, or after its block`,
      );
  });

  test.each<[string, unknown]>([
    ["no slot", undefined],
    ["a slot that is no text", { toString: 1 }],
    ["a block far from every day", `${Number.MAX_SAFE_INTEGER}/67`],
    ["a block without a minute", "82832"],
  ])("by a paid line with %s", async (_, slot) => {
    const { slot: __, ...bare } = call();
    const line = (slot === undefined ? bare : { ...bare, slot }) as SampleLine;
    const report = await audited([schedule(EVENING, DAY, FITS)], line);
    expect([report.proven, findingOf(report, CALLS).result]).toEqual([false, "broken"]);
  });
});

test("where leaves are unread, one of them may have committed to the plan earlier", () => {
  const fold = new PublishedFold();
  fold.schedules.set(DAY, {
    salt_hash: sha256hex(Buffer.from(FITS, "hex")),
    at: "2026-10-06T02:00:00.000Z",
    salt: FITS,
  });
  const schedules = new ScheduleAudit(fold, true);
  schedules.add(call());
  expect(schedules.calls.finding).toMatchObject({ result: "not run", not_run: 1, problems: [] });
});
