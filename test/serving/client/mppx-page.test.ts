import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Serving, serve } from "../../../serving/main.ts";
import { marketUp } from "../../fixtures/market/up.ts";
import { fundedKey } from "../../helpers/client.ts";
import { installedClient, packedClient } from "../../helpers/client-package.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../../helpers/public-record.ts";
import { ManualClock, servingOver } from "../../helpers/serving.ts";

/** The snippet of docs/client.md for mppx, as it stands there, by mppx's own package, at the market's own seller. */
const PAGE = resolve(import.meta.dirname, "../../../docs/client.md");
const native = { Request, Response };
const market = marketUp();
const clock = new ManualClock(new Date().toISOString());
let record: PublicRecord;
let live: Serving;
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "mppx-page-"));
  await installedClient(await packedClient(dir), dir);
  record = await PublicRecord.open();
  const computed_at = clock.now().toISOString();
  const specs = ["mpp", "both"].map((name) => ({ url: market.seller(name).urls[0]!, name }));
  await record.publish(
    specs.map((spec) => listingDraft(spec)),
    ...specs.map((spec) => record.grades([cardOf(spec, { computed_at })], "B: it delivers.")),
  );
  const { asset } = market.world.info;
  await record.live(
    specs.map((spec) => rowOf(spec, { price: "0.010000", asset, pay_to: market.seller(spec.name).payTo })),
  );
  // The sellers' servers put classes of their own in the place of the runtime's, which the service does not take for such.
  Object.assign(globalThis, native);
  live = await serve({ app: (await servingOver(record, { clock })).app, port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await live?.close();
  await record?.close();
  await rm(dir, { recursive: true, force: true });
});

test.each(["mpp", "both"])("pays the market's seller %s, once", async (name) => {
  const [, section] = (await readFile(PAGE, "utf8")).split("## With mppx\n");
  const [, snippet] = /^```js\n(.*?)^```$/ms.exec(section!)!;
  const file = join(dir, `${name}.mjs`);
  const asked = snippet!
    .replaceAll("https://HOST", live.url)
    .replaceAll("https://seller.example/sum", market.urlOf(name));
  await writeFile(file, asked);
  const env = { ...process.env, PRIVATE_KEY: await fundedKey(market.world.info) };
  expect((await promisify(execFile)(process.execPath, [file], { env })).stdout.trim()).toBe("200");
  const paid = (await market.ledgerOf(name)).filter(({ nonce }) => nonce !== undefined);
  expect(paid.map(({ status }) => status)).toEqual([200]);
});
