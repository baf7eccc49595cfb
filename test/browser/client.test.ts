import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { VERSION } from "../../serving/client/index.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { peer } from "../helpers/client.ts";
import { builtClient } from "../helpers/client-package.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { ManualClock, servingOver } from "../helpers/serving.ts";
import { chromiumPath, launchChromium, mayBeMissing } from "./chromium.ts";

/** The client's file in a browser, and in a worker of one, on a page of another origin than the service's. */
const missing = chromiumPath() === null && mayBeMissing;
if (missing) console.warn("no chromium in PATH: the client was NOT loaded in a browser (apt-get install chromium)");

const ASKED = { url: "https://seller.example/sum" };
let record: PublicRecord;
let live: Serving;
let browser: Browser;
let site: Awaited<ReturnType<typeof peer>>;
/** What the site answers next. */
let html = "";

beforeAll(async () => {
  if (missing) return;
  await builtClient();
  // The library asks the browser's clock.
  const clock = new ManualClock(new Date().toISOString());
  record = await PublicRecord.open();
  const computed_at = clock.now().toISOString();
  await record.publish([listingDraft(ASKED)], record.grades([cardOf(ASKED, { computed_at })], "B: it delivers."));
  await record.live([rowOf(ASKED)]);
  live = await serve({ app: (await servingOver(record, { clock })).app, port: 0, host: "127.0.0.1", graceMs: 200 });
  site = await peer((_, response) => void response.writeHead(200, { "content-type": "text/html" }).end(html));
  browser = await launchChromium();
});
afterAll(async () => {
  await browser?.close();
  await site?.close();
  await live?.close();
  await record?.close();
});

/** The page's own block, as the service shows it: with the address and the hash of this one. */
async function block(): Promise<string> {
  const markdown = await readFile(join(resolve(import.meta.dirname, "../.."), "docs/client.md"), "utf8");
  const [, text] = /^```html\n(.*?)^```$/ms.exec(markdown)!;
  const page = await (await fetch(`${live.url}/docs/client`)).text();
  const [integrity] = /sha256-[\w+/]{43}=/.exec(page)!;
  return text!.replaceAll("https://HOST", live.url).replaceAll("CLIENT_INTEGRITY", integrity);
}

/** A page of that site with this in it. @returns the page, and errors that were thrown on it */
async function opened(text: string): Promise<{ page: Page; errors: string[] }> {
  html = `<!doctype html><title>site</title><body>${text}`;
  const page = await browser.newPage();
  const errors: string[] = [];
  page.on("console", (message) => void (message.type() === "error" && errors.push(message.text())));
  await page.goto(site.url);
  return { page, errors };
}

describe.skipIf(missing)("the client in a browser", () => {
  test("the block of docs/client.md asks before a payment", async () => {
    const { page, errors } = await opened(await block());
    await page.waitForFunction("document.querySelector('output').textContent !== ''");
    expect(await page.textContent("output")).toBe("allowed: B: it delivers.");
    // A browser asks for the icon of every site.
    expect(errors.filter((error) => !error.includes("favicon"))).toEqual([]);
    await page.close();
  });

  test("a file of another hash than the page names is not run", async () => {
    const text = await block();
    const other = text.replace(/sha256-[\w+/]{43}=/, `sha256-${"A".repeat(43)}=`);
    expect(other).not.toBe(text);
    const { page, errors } = await opened(other);
    await expect.poll(() => errors.join("\n")).toMatch(/integrity/i);
    expect(await page.textContent("output")).toBe("");
    await page.close();
  });

  test("in a worker of its own, from the same file", async () => {
    const code = `
      import { guard, Service, VERSION } from "${live.url}/client.mjs";
      const mayPay = guard(new Service({ base: "${live.url}" }));
      const { outcome, says } = await mayPay({ url: "${ASKED.url}", method: "GET", offers: [] });
      postMessage([VERSION, typeof document, outcome, says].join(" "));`;
    const { page } = await opened("");
    const said = await page.evaluate(`new Promise((resolve, reject) => {
      const source = new Blob([${JSON.stringify(code)}], { type: "text/javascript" });
      const worker = new Worker(URL.createObjectURL(source), { type: "module" });
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = ({ message }) => reject(new Error(message));
    })`);
    expect(said).toBe(`${VERSION} undefined allowed B: it delivers.`);
    await page.close();
  });
});
