import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Serving, serve } from "../../serving/main.ts";
import { CheckAnswer } from "../../serving/schemas/check.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/** The first page that anybody reads: its code does what the table below it says, and it stays short. */
const README = join(import.meta.dirname, "../../README.md");
const GOOD = { url: "https://good.example/x" };
const FAIR = { url: "https://fair.example/x" };
const TAKER = { url: "https://taker.example/x" };
const BAD = { url: "https://bad.example/x" };
const NEW = { url: "https://new.example/x" };
const PAY_TO = `0x${"1".repeat(40)}`;

interface Asked {
  url: string;
  payTo: string;
  price: number;
  host?: string;
}
let record: PublicRecord;
let live: Serving;
let text: string;
let mayPay: (asked: Asked) => Promise<{ band: string; signature: string }>;
beforeAll(async () => {
  text = await readFile(README, "utf8");
  record = await PublicRecord.open();
  const all = [GOOD, FAIR, TAKER, BAD, NEW];
  await record.publish(
    all.map((one) => listingDraft(one)),
    record.grades([cardOf(GOOD, { band: "A" })], "A: it delivers."),
    record.grades([cardOf(FAIR, { band: "C" })], "C: its price moves too much."),
    record.grades([cardOf(TAKER, { band: "C", flags: ["took_the_money"] })], "C: it took 0.02 in 1 of 40 paid calls."),
    record.grades([cardOf(BAD, { band: "F" })], "F: at most 9.1 % of its answers are right."),
  );
  await record.live(all.map((one) => rowOf(one, one === TAKER ? { unserved: 1, unserved_since: 0 } : {})));
  live = await serve({ app: (await servingOver(record)).app, port: 0, host: "127.0.0.1", graceMs: 200 });
  const [, script] = /^```js\n(.*?)\n```$/ms.exec(text)!;
  expect(script!.split("\n").length).toBeLessThanOrEqual(12);
  const made = script!.replaceAll("https://HOST", live.url);
  ({ mayPay } = (await import(`data:text/javascript,${encodeURIComponent(made)}`)) as { mayPay: typeof mayPay });
});
afterAll(async () => {
  await live?.close();
  await record?.close();
});

const ask = (url: string, price: number, payTo = PAY_TO) => mayPay({ url, payTo, price });
/** An answer with status 200 of something that is not the service. */
const answering = (body: string) =>
  mayPay({ ...GOOD, payTo: PAY_TO, price: 0.01, host: `data:application/json,${body}#` });

describe("ten lines before you pay", () => {
  test("let pay what is good, and little where the letter says so or nothing is known", async () => {
    expect(await ask(GOOD.url, 0.9)).toMatchObject({ band: "A", signature: expect.any(String) });
    expect((await ask(FAIR.url, 0.05)).band).toBe("C");
    expect((await ask(NEW.url, 0.01)).band).toBe("UNRATED");
    await expect(ask(FAIR.url, 0.06)).rejects.toThrow("at most 0.05 a call: C: its price moves too much.");
    await expect(ask(NEW.url, 0.02)).rejects.toThrow("at most 0.01 a call: UNRATED: 0 of 30 paid calls");
  });

  test("pay nothing where money was taken, nothing was right, or another address stands in the 402", async () => {
    await expect(ask(TAKER.url, 0.01)).rejects.toThrow("at most 0 a call: C: it took 0.02 in 1 of 40 paid calls.");
    await expect(ask(BAD.url, 0.01)).rejects.toThrow("at most 0 a call: F: at most 9.1 %");
    await expect(ask(GOOD.url, 0.01, `0x${"9".repeat(40)}`)).rejects.toThrow("at most 0 a call: Do not pay yet");
    await expect(ask("javascript:alert(1)", 0.01)).rejects.toThrow("not checked: url must be");
  });

  test.each(["{}", '{"status":"ok"}', "[]", '{"band":"A+"}', '{"band":null}'])(
    "pay nothing where the answer is %s",
    async (body) => {
      await expect(answering(body)).rejects.toThrow("at most 0 a call");
      expect((await answering('{"band":"A"}')).band).toBe("A");
    },
  );

  test.each([Number.NaN, undefined, "free"])("pay nothing where the 402 has the price %s", async (price) => {
    await expect(ask(GOOD.url, price as number)).rejects.toThrow("at most 1 a call");
  });
});

test("the answer that it shows is one, in the words of today", () => {
  const [, json] = /^```json\n(.*?)\n```$/ms.exec(text)!;
  const shown = JSON.parse(json!) as Record<string, unknown>;
  for (const [name, value] of Object.entries(shown)) {
    expect([name, CheckAnswer.shape[name as keyof typeof CheckAnswer.shape].safeParse(value).success]).toEqual([
      name,
      true,
    ]);
  }
  expect(shown.why).toMatch(/^F: it took \d+\.\d\d in .*\. Composite 0\.\d{3}\.$/);
});

test("is read in three minutes, and shows one picture", async () => {
  expect(text.split(/\s+/).length).toBeLessThanOrEqual(900);
  const pictures = [...text.matchAll(/!\[[^\]]{20,}\]\((docs\/images\/[a-z-]+\.png)\)/g)].map(([, file]) => file!);
  expect(pictures).toHaveLength(1);
  for (const file of pictures) {
    const bytes = await readFile(join(README, "..", file));
    expect([file, bytes.subarray(1, 4).toString(), bytes.length < 200_000]).toEqual([file, "PNG", true]);
  }
});
