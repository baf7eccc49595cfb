import { deflateSync } from "node:zlib";
import { afterEach, expect, test } from "vitest";
import {
  createExtractor,
  type Extractor,
  ExtractorUnavailable,
  NotExtracted,
} from "../../../serving/work/extract/extractor.ts";

/** Documents that burn the readers' processors: nobody else is shut out by them, and they are not read twice for nothing. */
let reader: Extractor | null = null;
afterEach(async () => {
  await reader?.close();
  reader = null;
});
const opened = (options: Parameters<typeof createExtractor>[0]): Extractor => {
  reader = createExtractor(options);
  return reader;
};

/** A PDF of some 80 KB whose one page draws for ten seconds. @param seal makes its bytes another document's */
function burner(seal = ""): Buffer {
  const content = deflateSync(Buffer.alloc(80 * 2 ** 20, "q Q\n"), { level: 9 });
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << >> >>",
  ].map((body, i) => `${i + 1} 0 obj\n${body}\nendobj\n`);
  const stream = `4 0 obj\n<< /Length ${content.length} /Filter /FlateDecode >>\nstream\n`;
  const trailer = `\nendstream\nendobj\ntrailer\n<< /Root 1 0 R /Size 5 >>\n%%EOF\n%${seal}`;
  return Buffer.concat([Buffer.from(`%PDF-1.4\n${objects.join("")}${stream}`), content, Buffer.from(trailer)]);
}
const BURNER = burner();
const page = Buffer.from("<p>An honest page.</p>");
const stranger = { payer: "stranger", client: "198.51.100.1" };
const outcomeOf = (reading: Promise<unknown>) => reading.catch((error: Error) => error);

test("sixteen of one stranger leave a reader to everybody else", async () => {
  // Enough processor time for an honest page on a busy machine, and less than all sixteen take together.
  const extractor = opened({ limits: { cpuMs: 100_000, sharedCpuMs: 6_000, wallMs: 300_000 }, waitMs: 150_000 });
  const bad = Array.from({ length: 16 }, (_, i) =>
    outcomeOf(extractor.read({ bytes: burner(String(i)), kinds: ["pdf"], holder: stranger })),
  );
  await new Promise((done) => setTimeout(done, 100));
  const honest = await Promise.all(
    ["a", "b", "c"].map((client) =>
      extractor.read({ bytes: page, type: "text/html", kinds: ["html"], holder: { client } }),
    ),
  );
  expect(honest.map(({ text }) => text)).toEqual(Array(3).fill("An honest page."));
  await extractor.close();
  expect((await Promise.all(bad)).every((one) => one instanceof Error)).toBe(true);
});

test("the same bytes are refused at once with what they failed with, whoever sends them", async () => {
  const extractor = opened({ limits: { cpuMs: 1_500, wallMs: 300_000 } });
  const timed = async (holder: object): Promise<[outcome: unknown, ms: number]> => {
    const began = performance.now();
    return [await outcomeOf(extractor.read({ bytes: BURNER, kinds: ["pdf"], holder })), performance.now() - began];
  };
  const [first, readingMs] = await timed(stranger);
  expect(first).toBeInstanceOf(NotExtracted);
  const [again, againMs] = await timed({ client: "other" });
  expect(again).toBe(first);
  expect(againMs).toBeLessThan(readingMs / 3);
  const more = outcomeOf(extractor.read({ bytes: burner("more"), kinds: ["pdf"], holder: stranger }));
  expect(await more).not.toBe(first);
});

test("a document that takes long makes room where others wait, and that is nothing against it", async () => {
  const limits = { cpuMs: 60_000, sharedCpuMs: 700, wallMs: 300_000 };
  const extractor = opened({ atOnce: 1, limits, waitMs: 150_000 });
  const long = outcomeOf(extractor.read({ bytes: BURNER, kinds: ["pdf"], holder: stranger }));
  await new Promise((done) => setTimeout(done, 50));
  const waiting = extractor.read({ bytes: page, type: "text/html", kinds: ["html"], holder: { client: "other" } });
  expect(await long).toBeInstanceOf(ExtractorUnavailable);
  expect((await waiting).text).toBe("An honest page.");
});
