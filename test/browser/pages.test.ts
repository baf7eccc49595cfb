import { readFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import axe from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ControlCalls } from "../../pipelines/1-observe/probe/exchange.ts";
import type { ProbeDeps } from "../../pipelines/1-observe/probe/probe.ts";
import { processReader } from "../../pipelines/1-observe/reading/reader.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { builtClient } from "../helpers/client-package.ts";
import { capOf, type PublicRecord } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";
import { STEADY_LOOP } from "../helpers/steady-loop.ts";
import {
  answer,
  entry,
  FakeEgress,
  FakeRail,
  item,
  SELLER,
  terms402,
  wellKnown,
} from "../pipelines/1-observe/world.ts";
import { chromiumPath, launchChromium, mayBeMissing } from "./chromium.ts";
import { BARE, FAILED, makeRecord, RICH } from "./record.ts";

/** What in-page.js finds. */
interface Found {
  faint: string[];
  lowest: number;
  texts: number;
  charts: { name: string; role: string | null; table: boolean }[];
  /** Words in pictures, and those that lie over each other or leave their picture. */
  labels: number;
  overlaps: string[];
  faults: string[];
  /** Pixels by which the page is wider than the window. */
  overflow: number;
  letters: { text: string; ratio: number }[];
  /** Smallest text as drawn, px. */
  smallest: number;
  /** Places where the keyboard stops. */
  stops: number;
  scriptsRan: boolean;
}

const IN_PAGE = readFileSync(new URL("in-page.js", import.meta.url), "utf8");
const missing = chromiumPath() === null && mayBeMissing;
if (missing) console.warn("no chromium in PATH: the pages were NOT looked at in a browser (apt-get install chromium)");

const PAGES = {
  market: "/",
  search: "/?q=seller-1&letter=B&sort=worst",
  empty: "/?q=nobody",
  endpoint: `/endpoint/${capOf(RICH)}`,
  bare: `/endpoint/${capOf(BARE)}`,
  failed: `/endpoint/${capOf(FAILED)}`,
  doc: "/docs/check-before-you-pay",
  form: "/check-my-listing",
  exposure: "/exposure",
  check: `/check?url=${encodeURIComponent(RICH.url)}`,
  method: "/docs/verification-method",
  settings: "/docs/settings",
  letters: "/docs/how-a-letter-is-made",
  leaderboard: "/leaderboard",
  prove: "/prove",
  byClass: "/?class=arithmetic",
  status: "/status",
  docs: "/docs",
  missing: `/endpoint/cap_${"0".repeat(26)}`,
} as const;
type Name = keyof typeof PAGES;
const NAMES = Object.keys(PAGES) as Name[];

/** Pictures on each page: a row with a card has one, the endpoint six. */
const CHARTS: Record<Name, number> = {
  market: 91,
  search: 3,
  empty: 0,
  endpoint: 6,
  bare: 0,
  failed: 0,
  doc: 0,
  form: 0,
  exposure: 0,
  check: 0,
  method: 0,
  settings: 0,
  letters: 0,
  leaderboard: 0,
  prove: 0,
  byClass: 1,
  status: 0,
  docs: 0,
  missing: 0,
};

const WIDTHS = { phone: 360, desktop: 1280 } as const;
const LOOKS = (["light", "dark"] as const).flatMap((scheme) =>
  (["phone", "desktop"] as const).flatMap((screen) => [true, false].map((script) => ({ scheme, screen, script }))),
);
type Look = (typeof LOOKS)[number];

let record: PublicRecord;
let serving: Serving;
let browser: Browser;
let shots: string;
beforeAll(async () => {
  if (missing) return;
  await builtClient();
  browser = await launchChromium();
  record = await makeRecord();
  const { app } = await servingOver(record, {
    looks: looksAt(),
    limits: { looks_per_hour: 1000, exposures_per_minute: 1000 },
  });
  serving = await serve({ app, port: 0, host: "127.0.0.1" });
  shots = process.env.BROWSER_SHOTS ?? (await mkdtemp(join(tmpdir(), "touchstone-pages-")));
  console.log(`screenshots: ${shots}`);
});
afterAll(async () => {
  await browser?.close();
  await serving?.close();
  await record?.close();
});

/** Sellers of no real network: one that gets much of its 402 wrong, in long words. */
function looksAt(): ProbeDeps {
  const egress = new FakeEgress();
  const long = `${SELLER}/v1/${"deep/".repeat(30)}`;
  const wrong = [
    entry(),
    entry({ extra: {}, network: "base", payTo: "0xYourWalletAddressGoesHere", maxTimeoutSeconds: 0 }),
  ];
  egress.sellers.set(SELLER, ({ url }) =>
    url.endsWith("x402") ? answer(200, wellKnown(item({ resource: long, method: "GET" }))) : terms402([...wrong]),
  );
  return {
    egress,
    reader: processReader,
    loop: STEADY_LOOP,
    rail: new FakeRail(),
    control: new ControlCalls(egress, []),
  };
}

const contextOf = ({ scheme, screen, script }: Look): Promise<BrowserContext> =>
  browser.newContext({
    colorScheme: scheme,
    viewport: { width: WIDTHS[screen], height: 800 },
    javaScriptEnabled: script,
  });

/** A page with what it said and asked for on its way. */
async function opened(context: BrowserContext, path: string) {
  const page = await context.newPage();
  const said: string[] = [];
  const asked: string[] = [];
  page.on("console", (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => said.push(error.message));
  page.on("request", (request) => asked.push(request.url()));
  const response = await page.goto(serving.url + path);
  return { page, said, asked, status: response!.status() };
}

/** What axe finds against WCAG 2.2 A and AA and its own best practices. */
async function axeFinds(page: Page): Promise<string[]> {
  // Evaluated as the page's tools do it, not loaded by the page: its policy stays in force.
  await page.evaluate(axe.source);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  return page.evaluate<
    string[]
  >(`axe.run(document, { runOnly: ${JSON.stringify(tags)} }).then(({ violations, passes }) =>
    passes.length < 10 ? ["axe looked at nothing"] : violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => id + " " + target.join(" ") + ": " + failureSummary)))`);
}

const findings = (page: Page): Promise<Found> => page.evaluate<Found>(IN_PAGE);

describe.skipIf(missing).concurrent.each(LOOKS)("$scheme, $screen, script allowed: $script", (look) => {
  test.each(NAMES)("%s", async (name) => {
    const context = await contextOf(look);
    try {
      const { page, said, asked, status } = await opened(context, PAGES[name]);
      expect(status).toBe(name === "missing" ? 404 : 200);
      // A 404 is told on the console as such; nothing else may be said there, least of all a breach of the policy.
      expect(said.filter((line) => !(name === "missing" && line.includes("404")))).toEqual([]);
      expect(asked).toEqual([serving.url + PAGES[name]]);
      const found = await findings(page);
      expect(found.overflow).toBe(0);
      expect(found.faint).toEqual([]);
      expect(found.texts).toBeGreaterThan(name === "missing" ? 5 : 12);
      expect(found.faults).toEqual([]);
      for (const chart of found.charts) {
        expect(chart).toEqual({ name: expect.stringMatching(/.{5}/), role: "img", table: true });
      }
      expect(found.charts).toHaveLength(CHARTS[name]);
      expect(found.overlaps).toEqual([]);
      if (name === "endpoint") expect(found.labels).toBeGreaterThan(25);
      for (const { text, ratio } of found.letters) {
        expect(text).toMatch(/^(?:[ABCDF]|unrated)$/);
        expect(ratio).toBeGreaterThanOrEqual(4.5);
      }
      expect(found.smallest).toBeGreaterThanOrEqual(10);
      if (look.script) {
        expect(await axeFinds(page)).toEqual([]);
        await page.screenshot({ path: join(shots, `${name}-${look.scheme}-${look.screen}.png`), fullPage: true });
      }
    } finally {
      await context.close();
    }
  });
});

describe.skipIf(missing).concurrent.each(LOOKS)("a form, $scheme, $screen, script allowed: $script", (look) => {
  const FORMS = {
    answer: {
      at: PAGES.form,
      field: "input[name=url]",
      filled: `${SELLER}/v1/${"deep/".repeat(30)}`,
      to: "/check-my-listing/answer",
      headings: [
        "What came back",
        "What to change",
        "What was read",
        "A stock x402 client",
        "Your listing and the record",
      ],
    },
    report: {
      at: PAGES.exposure,
      field: "textarea",
      filled: `${RICH.url} 12000 0x${"1".repeat(40)}\n${BARE.url}\nhttps://nobody.example/x 5 0x${"2".repeat(40)}`,
      to: "/exposure/report",
      headings: ["In sum", "Whom you pay", "Each dependency"],
    },
  };

  test.each(Object.entries(FORMS))("%s: filled in and sent, it is answered by a whole page", async (name, form) => {
    const context = await contextOf(look);
    try {
      const { page, said } = await opened(context, form.at);
      await page.locator(form.field).fill(form.filled);
      await page.locator("button[type=submit]").focus();
      await page.keyboard.press("Enter");
      await page.waitForURL((url) => url.pathname === form.to);
      expect(await page.locator("h2").allTextContents()).toEqual(form.headings);
      const found = await findings(page);
      expect([said, found.overflow, found.faint, found.faults]).toEqual([[], 0, [], []]);
      if (look.script) {
        expect(await axeFinds(page)).toEqual([]);
        await page.screenshot({ path: join(shots, `${name}-${look.scheme}-${look.screen}.png`), fullPage: true });
      }
    } finally {
      await context.close();
    }
  });
});

describe.skipIf(missing)("the keyboard", () => {
  const look: Look = { scheme: "light", screen: "desktop", script: true };
  const ACTIVE = `(() => {
    const at = document.activeElement;
    if (!at || at === document.body) return null;
    const style = getComputedStyle(at);
    const seen = at.getBoundingClientRect();
    at.dataset.stop ??= String((window.stops = (window.stops ?? 0) + 1));
    return {
      stop: at.dataset.stop,
      says: at.textContent.trim().slice(0, 40),
      outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
      visible: seen.width > 0 && seen.height > 0 && seen.right > 0 && seen.bottom > 0,
    };
  })()`;
  interface Stop {
    stop: string;
    says: string;
    outlined: boolean;
    visible: boolean;
  }

  test.each(["search", "endpoint"] as const)(
    "%s: reaches everything that can be used, and shows where it is",
    async (name) => {
      const context = await contextOf(look);
      try {
        const { page } = await opened(context, PAGES[name]);
        const { stops } = await findings(page);
        const reached = new Map<string, Stop>();
        for (let i = 0; i < stops + 5; i++) {
          await page.keyboard.press("Tab");
          const at = await page.evaluate<Stop | null>(ACTIVE);
          if (!at || reached.has(at.stop)) break;
          reached.set(at.stop, at);
        }
        expect([...reached.values()].filter((stop) => !stop.outlined || !stop.visible)).toEqual([]);
        expect(reached.size).toBe(stops);
        expect([...reached.values()][0]!.says).toBe("Skip to the content");
      } finally {
        await context.close();
      }
    },
  );

  test("opens the figures of a picture and leaves the form with Enter, with scripts off", async () => {
    const context = await contextOf({ ...look, script: false });
    try {
      const { page } = await opened(context, "/");
      await page.locator("input[name=q]").focus();
      await page.keyboard.type("seller-11");
      await page.keyboard.press("Enter");
      await page.waitForURL((url) => url.searchParams.get("q") === "seller-11");
      expect(await page.locator(".market tbody tr").count()).toBe(9);
      await page.locator("#figures summary").focus();
      await page.keyboard.press("Enter");
      expect(await page.locator("#figures table").isVisible()).toBe(true);
    } finally {
      await context.close();
    }
  });
});

describe.skipIf(missing)("a phone", () => {
  test("shows a row of the market in at most 90 px, in one line its name and its verdict; opened it shows the sentence", async () => {
    const context = await contextOf({ scheme: "light", screen: "phone", script: false });
    try {
      const { page } = await opened(context, "/");
      const rows = page.locator(".market tbody tr");
      const heights = () =>
        page.evaluate<number[]>(
          '[...document.querySelectorAll(".market tbody tr")].map((row) => row.getBoundingClientRect().height)',
        );
      const closed = await heights();
      expect(closed).toHaveLength(100);
      expect(Math.max(...closed)).toBeLessThanOrEqual(90);
      await rows.first().locator("summary").click();
      expect((await heights())[0]).toBeGreaterThan(90);
      expect(await rows.first().locator("details").textContent()).toContain("95 % confidence");
    } finally {
      await context.close();
    }
  });

  test("checks a url that was pasted on the home page", async () => {
    const context = await contextOf({ scheme: "dark", screen: "phone", script: false });
    try {
      const { page, said } = await opened(context, "/");
      await page.locator(".box input").fill(RICH.url);
      await page.keyboard.press("Enter");
      await page.waitForURL((url) => url.pathname === "/check");
      expect(await page.locator(".verdict .grade").textContent()).toBe("B");
      expect(said).toEqual([]);
    } finally {
      await context.close();
    }
  });
});

describe.skipIf(missing)("a page", () => {
  test("runs no script and loads no picture, even when somebody got one into it", async () => {
    const context = await contextOf({ scheme: "light", screen: "desktop", script: true });
    try {
      const { page, said } = await opened(context, PAGES.endpoint);
      const refused: (string | undefined)[] = [];
      page.on("requestfailed", (request) => refused.push(request.failure()?.errorText));
      await page.evaluate(`(() => {
        const script = document.createElement("script");
        script.textContent = "document.documentElement.dataset.ran = 'yes'";
        document.body.append(script, Object.assign(new Image(), { src: "https://elsewhere.example/pixel.png" }));
      })()`);
      const complaints = () => said.filter((line) => line.includes("Content Security Policy")).length;
      await expect.poll(() => [complaints() >= 2, refused]).toEqual([true, ["csp"]]);
      // Whatever else would come has come by then.
      await page.waitForTimeout(200);
      expect((await findings(page)).scriptsRan).toBe(false);
      expect(refused).toEqual(["csp"]);
    } finally {
      await context.close();
    }
  });

  test("on paper: dark on white, every table open, no form", async () => {
    const context = await contextOf({ scheme: "dark", screen: "desktop", script: false });
    try {
      const { page } = await opened(context, PAGES.endpoint);
      await page.emulateMedia({ media: "print", colorScheme: "dark" });
      const seen = await page.evaluate<{ bg: string; nav: boolean; tables: number[] }>(`(() => ({
        bg: getComputedStyle(document.body).backgroundColor,
        nav: document.querySelector(".mast nav").checkVisibility(),
        tables: [...document.querySelectorAll("details table")].map((table) => table.getBoundingClientRect().height),
      }))()`);
      expect([seen.bg, seen.nav]).toEqual(["rgb(255, 255, 255)", false]);
      expect(Math.min(...seen.tables)).toBeGreaterThan(50);
    } finally {
      await context.close();
    }
  });
});

test.skipIf(missing)("the checks of pages find a fault where there is one", async () => {
  const context = await contextOf({ scheme: "light", screen: "desktop", script: true });
  try {
    const { page } = await opened(context, PAGES.endpoint);
    await page.evaluate(`(() => {
      const svg = document.querySelector("figure svg[role=img]");
      const label = svg.querySelector("text");
      svg.append(label.cloneNode(true));
      document.querySelector("main").append(document.createElement("button"));
    })()`);
    expect((await findings(page)).overlaps).toHaveLength(1);
    expect((await axeFinds(page)).map((one) => one.split(" ")[0])).toContain("button-name");
  } finally {
    await context.close();
  }
});

test("where there is no chromium the message says what to install", () => {
  expect(chromiumPath("/nonexistent:")).toBeNull();
});
