import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import axe from "axe-core";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { cosignatureLine } from "../../infra/tree/cosignature.ts";
import { COSIGNATURE, ED25519, formatVkey, type NoteSigner } from "../../infra/tree/note.ts";
import type { CardBundle } from "../../pipelines/published/card-bundle.ts";
import { STEPS, type StepId } from "../../serving/prove/steps.ts";
import type { CardProof } from "../../serving/schemas/trust.ts";
import { liesOf } from "../helpers/bundle-lies.ts";
import { type LiveService, liveService, now, peer } from "../helpers/client.ts";
import { builtClient } from "../helpers/client-package.ts";
import { cardOf, listingDraft, NOW, ORIGIN, type PublicRecord } from "../helpers/public-record.ts";
import { noteSigner } from "../helpers/witnessed.ts";
import { capOf } from "../pipelines/2-ingest/records.ts";
import { chromiumPath, launchChromium, mayBeMissing } from "./chromium.ts";
import { BETTER, GOOD, otherRows, provenRecord, specOf, UNFOUNDED, UNSIGNED } from "./proven-record.ts";

/**
 * The proof of a card in a real browser: the honest case, and a service that lies in each of the ways that a mirror is
 * tried with. A server between browser and service adds the cosignatures of witnesses, and tells the lies.
 */
const missing = chromiumPath() === null && mayBeMissing;
if (missing) console.warn("no chromium in PATH: no card was proven in a browser (apt-get install chromium)");

const north = noteSigner("north.example/w", 3);
const south = noteSigner("south.example/w", 4);
const MINUTE_MS = 60_000;

let dir: string;
let record: PublicRecord;
let fork: PublicRecord;
let live: LiveService;
let forked: LiveService;
let browser: Browser;
let policy: string;

/** An answer on its way to the browser; `body` is unpacked. */
interface Passing {
  path: string;
  status: number;
  body: Buffer;
}
type Lie = (answer: Passing) => Passing | Promise<Passing>;
let lie: Lie | null = null;
/** Witnesses that cosign each checkpoint on its way. */
let witnesses: readonly NoteSigner[] = [north, south];
let upstream: () => LiveService = () => live;
let site: Awaited<ReturnType<typeof peer>>;

const cosigned = (bundle: CardBundle, by = witnesses): CardBundle => {
  const text = `${bundle.checkpoint.split("\n\n")[0]!}\n`;
  const lines = by.map((key) => cosignatureLine(text, key, new Date(now() - MINUTE_MS)));
  return { ...bundle, checkpoint: bundle.checkpoint + lines.join("") };
};
const isProof = ({ path, status }: Passing): boolean => path.endsWith("/proof") && status === 200;

beforeAll(async () => {
  if (missing) return;
  await builtClient();
  dir = await mkdtemp(join(tmpdir(), "prove-"));
  record = await provenRecord();
  fork = await provenRecord(record.keys);
  [live, forked] = [await liveService(record), await liveService(fork)];
  site = await peer(async (request, response) => {
    const path = request.url!;
    const answer = await fetch(upstream().url + path, { headers: { accept: request.headers.accept ?? "*/*" } });
    let passing: Passing = { path, status: answer.status, body: Buffer.from(await answer.arrayBuffer()) };
    if (isProof(passing)) {
      const proof = JSON.parse(passing.body.toString("utf8")) as CardProof;
      const made = { ...proof, bundle: cosigned(proof.bundle), graded: proof.graded && cosigned(proof.graded) };
      passing = { ...passing, body: Buffer.from(JSON.stringify(made)) };
    }
    if (lie) passing = await lie(passing);
    const headers = Object.fromEntries(
      ["content-type", "content-security-policy"].flatMap((name) => {
        const value = answer.headers.get(name);
        return value === null ? [] : [[name, value]];
      }),
    );
    response.writeHead(passing.status, { ...headers, "cache-control": "no-store" }).end(passing.body);
  });
  const x = record.jwks.keys.find(({ purpose }) => purpose === "log")!.x;
  const log = formatVkey({ name: ORIGIN, publicKey: fromBase64url(x)! }, ED25519);
  const [a, b] = [north, south].map((key) => formatVkey(key, COSIGNATURE));
  policy = `log ${log}\nwitness north ${a}\nwitness south ${b}\ngroup both all north south\nquorum both\n`;
  browser = await launchChromium();
});
afterAll(async () => {
  await browser?.close();
  await site?.close();
  for (const one of [live, forked]) await one?.close();
  for (const one of [record, fork]) await one?.close();
  if (dir) await rm(dir, { recursive: true, force: true });
});

interface Told {
  outcomes: Record<StepId, string>;
  says: Record<StepId, string>;
  status: string;
}
const outcomesBut = (but: Partial<Record<StepId, string>>): Record<string, string> => ({
  ...Object.fromEntries(Object.keys(STEPS).map((step) => [step, "shown"])),
  history: "open",
  ...but,
});

/** A context whose clock is the record's, and whose reader has this policy. */
async function contextWith(text: string | null, more: Parameters<Browser["newContext"]>[0] = {}, at = NOW) {
  const context = await browser.newContext(more);
  await context.clock.setFixedTime(new Date(at));
  if (text !== null) {
    const set = `if (location.protocol !== "about:") localStorage.setItem("touchstone.policy", ${JSON.stringify(text)})`;
    await context.addInitScript(set);
  }
  return context;
}

/** Waits for the n-th proof of a page. */
async function told(page: Page, nth = 1): Promise<Told> {
  await page.waitForSelector(`[data-prove][data-done="${nth}"]`);
  return page.evaluate<Told>(`(() => {
    const items = [...document.querySelectorAll(".steps li")];
    const of = (value) => Object.fromEntries(items.map((item) => [item.dataset.step, value(item)]));
    return {
      outcomes: of((item) => item.dataset.outcome),
      says: of((item) => item.querySelector(".said").textContent),
      status: document.querySelector(".proof .line").textContent,
    };
  })()`);
}

async function pressed(context: BrowserContext, name = GOOD): Promise<Page> {
  const page = await context.newPage();
  await page.goto(`${site.url}/endpoint/${capOf(name)}`);
  await page.locator("#prove-start").click();
  return page;
}

/** Proves an endpoint's page while this lie is told. */
async function provenWith(
  told_: Lie | null,
  { name = GOOD, text = policy as string | null, at = NOW } = {},
): Promise<Told> {
  const context = await contextWith(text, {}, at);
  lie = told_;
  try {
    return await told(await pressed(context, name));
  } finally {
    lie = null;
    await context.close();
  }
}

const changed =
  (change: (proof: CardProof) => CardProof): Lie =>
  (passing) =>
    isProof(passing)
      ? { ...passing, body: Buffer.from(JSON.stringify(change(JSON.parse(passing.body.toString("utf8"))))) }
      : passing;
const replaced =
  (path: RegExp, body: (body: Buffer) => Buffer, status = 200): Lie =>
  (passing) =>
    path.test(passing.path) ? { ...passing, status, body: body(passing.body) } : passing;
const text =
  (from: RegExp, to: string | ((all: string, one: string) => string)) =>
  (body: Buffer): Buffer => {
    const before = body.toString("utf8");
    const after = before.replace(from, to as string);
    if (after === before) throw new Error(`nothing to replace: ${from}`);
    return Buffer.from(after);
  };

describe.skipIf(missing)("an honest service", () => {
  test("every step is shown, and the letter is made again from the rows; what was loaded proves the card offline", async () => {
    const context = await contextWith(policy, { acceptDownloads: true });
    const page = await pressed(context);
    const { outcomes, says, status } = await told(page);
    expect([says, outcomes]).toEqual([says, outcomesBut({})]);
    expect(status).toMatch(/has the letter [A-F]: 9 of 10 steps are shown, 1 not\.$/);
    expect(says.evidence).toMatch(/Of an earlier card, leaf \d+ .* 120 rows in 20 evidence files have the hash/);
    expect(says.newest).toMatch(/^\. all \d+ leaves behind it/);

    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".proof a[download]").click()]);
    const saved = join(dir, "saved.touchstone");
    await download.saveAs(saved);
    const html = join(dir, "prove.html");
    await writeFile(html, await (await fetch(`${live.url}/prove`)).text());
    await context.setOffline(true);
    const offline = await context.newPage();
    const asked: string[] = [];
    offline.on("request", (request) => asked.push(request.url()));
    await offline.goto(`file://${html}`);
    await offline.locator(".proof input[type=file]").first().setInputFiles(saved);
    const again = await told(offline);
    expect([again.says, again.outcomes]).toEqual([again.says, outcomesBut({ page: "open" })]);

    const lying = (await readFile(saved, "utf8")).replace(/\\"band\\":\\"[A-F]\\"/, '\\"band\\":\\"A\\"');
    const spoilt = join(dir, "spoilt.touchstone");
    await writeFile(spoilt, lying);
    await offline.locator(".proof input[type=file]").first().setInputFiles(spoilt);
    expect((await told(offline, 2)).outcomes.inclusion).toBe("failed");
    expect(asked).toEqual([`file://${html}`]);
    await context.close();
  });

  test("a card bundle alone proves card and checkpoint; what it does not hold is not shown", async () => {
    const bundle = join(dir, "bundle.touchstone");
    const made = (await (await fetch(`${live.url}/v1/trust/${capOf(GOOD)}/bundle`)).json()) as CardBundle;
    await writeFile(bundle, JSON.stringify(cosigned(made)));
    const context = await contextWith(policy);
    const page = await context.newPage();
    await page.goto(`${site.url}/prove`);
    await page.locator(".proof input[type=file]").first().setInputFiles(bundle);
    const { outcomes } = await told(page);
    expect(outcomes).toEqual(outcomesBut({ keys: "open", page: "open", newest: "open", evidence: "open" }));
    await context.close();
  });

  test("on /prove an address that names no endpoint is told so; the one of an endpoint's page is proven", async () => {
    const context = await contextWith(policy);
    const page = await context.newPage();
    await page.goto(`${site.url}/prove`);
    const address = page.locator(".proof input[type=url]");
    const message = (): Promise<string> =>
      address.evaluate<string, { validationMessage: string }>((at) => at.validationMessage);
    await address.fill(`${site.url}/search`);
    await page.getByRole("button", { name: "Prove" }).click();
    await expect.poll(message).toContain("cap_");
    await address.fill(`${site.url}/endpoint/${capOf(GOOD)}`);
    expect(await message()).toBe("");
    await page.getByRole("button", { name: "Prove" }).click();
    expect((await told(page)).outcomes).toMatchObject({ card: "shown", inclusion: "shown", checkpoint: "shown" });
    await context.close();
  });

  test("a reader without a policy is told that only the log's own witness was asked", async () => {
    const { outcomes, says } = await provenWith(null, { text: null });
    expect(outcomes).toEqual(outcomesBut({ witnesses: "open" }));
    expect(says.checkpoint).toContain("the service itself shows");
    expect(says.witnesses).toContain("proves less");
  });

  test("a policy that is typed in is kept in the browser, and asked for at once", async () => {
    const context = await contextWith(null);
    const page = await pressed(context);
    expect((await told(page)).outcomes.witnesses).toBe("open");
    await page.locator("details.policy summary").click();
    await page.locator("details.policy textarea").fill(policy);
    await page.locator("details.policy button").click();
    const second = await told(page, 2);
    expect([second.outcomes.witnesses, second.outcomes.history]).toEqual(["shown", "shown"]);
    const other = await pressed(context);
    expect((await told(other)).outcomes.witnesses).toBe("shown");
    await context.close();
  });

  test.each(
    (["light", "dark"] as const).flatMap((colorScheme) => [360, 1280].map((width) => ({ colorScheme, width }))),
  )("$colorScheme, $width px: nothing is faint or too wide, and axe finds nothing", async ({ colorScheme, width }) => {
    const context = await contextWith(policy, { colorScheme, viewport: { width, height: 800 } });
    lie = changed((proof) => ({ ...proof, graded: null }));
    const page = await pressed(context);
    await told(page);
    lie = null;
    expect(await page.evaluate("document.activeElement.textContent")).toBe("What is proven");
    await page.locator("details.policy summary").click();
    const found = await page.evaluate<Record<string, unknown>>(
      await readFile(new URL("in-page.js", import.meta.url), "utf8"),
    );
    expect([found.overflow, found.faint, found.faults]).toEqual([0, [], []]);
    await page.evaluate(axe.source);
    const violations = await page.evaluate<string[]>(
      "axe.run(document).then(({ violations }) => violations.map(({ id, nodes }) => id + ' ' + nodes[0].html))",
    );
    expect(violations).toEqual([]);
    if (process.env.BROWSER_SHOTS) {
      await page.screenshot({
        path: join(process.env.BROWSER_SHOTS, `proof-${colorScheme}-${width}.png`),
        fullPage: true,
      });
    }
    await context.close();
  });

  test("without script there is no button, and the bundle is linked", async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${site.url}/endpoint/${capOf(GOOD)}`);
    expect(await page.locator("#prove-start").isVisible()).toBe(false);
    expect(await page.locator(`.proof a[href="/v1/trust/${capOf(GOOD)}/bundle"]`).isVisible()).toBe(true);
    await context.close();
  });
});

describe.skipIf(missing)("a service that lies", () => {
  const withLie = (name: string) => (proof: CardProof) => ({
    ...proof,
    bundle: new Map(liesOf(proof.bundle)).get(name)! as CardBundle,
  });
  const entries = /^\/tile\/entries\//;
  const evidenceFile = /^\/evidence\//;
  let rows: { key: string; packed: Buffer };

  const LIES: [
    says: string,
    step: StepId,
    because: RegExp,
    lie: () => Lie | null,
    more?: Parameters<typeof provenWith>[1],
  ][] = [
    [
      "another letter on the page",
      "page",
      /the page shows [A-F], and the proven card has/,
      () => replaced(/^\/endpoint\//, text(/<span class="grade [A-F] big">[A-F]</, '<span class="grade A big">E<')),
    ],
    [
      "another sentence on the page",
      "page",
      /another sentence/,
      () => replaced(/^\/endpoint\//, text(/(whole sentence<\/summary><p>)[^<]*/, "$1E: it is the best there is.")),
    ],
    [
      "another letter in the card",
      "inclusion",
      /not in the tree/,
      () => changed(withLie("another letter in the card")),
    ],
    ["another position of the card", "inclusion", /not in the tree/, () => changed(withLie("another position"))],
    [
      "another hash in the proof",
      "inclusion",
      /not in the tree/,
      () => changed(withLie("a hash of the proof changed")),
    ],
    [
      "another root in the checkpoint",
      "checkpoint",
      /signature/,
      () => changed(withLie("another root in the checkpoint")),
    ],
    ["a broken signature of the log", "checkpoint", /signature/, () => changed(withLie("the log's signature changed"))],
    ["a card that its log holds and nobody signed", "card", /not signed/, () => null, { name: UNSIGNED }],
    [
      "a stranger's key for the card",
      "card",
      /not signed/,
      () => changed(withLie("a stranger's cards key under the old id")),
    ],
    [
      "the card of another endpoint under this one's name",
      "card",
      /no grade of/,
      () => async (passing) => {
        if (!isProof(passing)) return passing;
        const other = (await (await fetch(`${live.url}/v1/trust/${capOf(BETTER)}/bundle`)).json()) as CardBundle;
        const proof = JSON.parse(passing.body.toString("utf8")) as CardProof;
        return {
          ...passing,
          body: Buffer.from(JSON.stringify({ ...proof, bundle: cosigned({ ...other, capability_id: capOf(GOOD) }) })),
        };
      },
    ],
    [
      "the whole proof of another endpoint",
      "card",
      /was asked for/,
      () => async (passing) => {
        if (!isProof(passing)) return passing;
        const proof = (await (await fetch(`${live.url}/v1/trust/${capOf(BETTER)}/proof`)).json()) as CardProof;
        return { ...passing, body: Buffer.from(JSON.stringify({ ...proof, bundle: cosigned(proof.bundle) })) };
      },
    ],
    [
      "a checkpoint of three days ago",
      "witnesses",
      /more than 86400 s ago/,
      () => null,
      { at: "2026-11-24T12:00:00.000Z" },
    ],
    [
      "an old checkpoint, to a reader without a policy",
      "witnesses",
      /more than 86400 s ago/,
      () => null,
      { at: "2026-11-24T12:00:00.000Z", text: null },
    ],
    [
      "a changed cosignature",
      "witnesses",
      /does not hold/,
      () =>
        changed((proof) => ({
          ...proof,
          bundle: {
            ...proof.bundle,
            checkpoint: proof.bundle.checkpoint.replace(
              /(south\.example\/w \S{20})(\S)/,
              (_, kept, one) => `${kept}${one === "A" ? "B" : "A"}`,
            ),
          },
        })),
    ],
    [
      "an old card under a new checkpoint",
      "newest",
      /is a newer card/,
      () => changed((proof) => ({ ...proof, bundle: proof.graded! })),
    ],
    [
      "a broken tile",
      "newest",
      /another root|Unexpected|not valid JSON/,
      () => replaced(entries, (body) => Buffer.from(body.map((byte, i) => (i === body.length - 3 ? byte ^ 1 : byte)))),
    ],
    ["a tile that ends early", "newest", /ends within a leaf/, () => replaced(entries, (body) => body.subarray(0, -9))],
    [
      "a tile without its last leaf",
      "newest",
      /leaves came/,
      () =>
        replaced(entries, (body) => {
          let at = 0;
          while (at + 2 + body.readUInt16BE(at) < body.length) at += 2 + body.readUInt16BE(at);
          return body.subarray(0, at);
        }),
    ],
    ["a letter above its own figures", "numbers", /the letter is A, and its/, () => null, { name: BETTER }],
    [
      "a card that does not follow from the rows",
      "evidence",
      /sample_count: published/,
      () => null,
      { name: UNFOUNDED },
    ],
    ["evidence of other bytes", "evidence", /with the hash/, () => replaced(evidenceFile, () => rows.packed)],
    [
      "evidence of other rows under their own name",
      "evidence",
      /they are not the rows/,
      () => (passing) => {
        if (passing.path.startsWith("/evidence/") && passing.status === 404)
          return { ...passing, status: 200, body: rows.packed };
        const day = rows.key.slice(0, 20);
        return changed((proof) => ({
          ...proof,
          evidence: proof.evidence.map((file) => (file.key.startsWith(day) ? { ...file, key: rows.key } : file)),
        }))(passing);
      },
    ],
    [
      "a day of evidence that is left out",
      "evidence",
      /they are not the rows/,
      () => changed((proof) => ({ ...proof, evidence: proof.evidence.slice(1) })),
    ],
    [
      "evidence that is no file",
      "evidence",
      /no zstd frame/,
      () => replaced(evidenceFile, () => Buffer.from("x".repeat(99))),
    ],
    [
      "a keys document with another signature",
      "keys",
      /does not hold/,
      () =>
        replaced(
          /^\/keys\/0\.json/,
          text(/"signature":"(.)/, (_all, one) => `"signature":"${one === "A" ? "B" : "A"}`),
        ),
    ],
    [
      "a keys document that follows no other",
      "keys",
      /does not follow/,
      () => replaced(/^\/keys\/0\.json/, text(/"previous":null/, `"previous":"${"0".repeat(64)}"`)),
    ],
  ];

  beforeAll(async () => {
    if (missing) return;
    const proof = (await (await fetch(`${live.url}/v1/trust/${capOf(GOOD)}/proof`)).json()) as CardProof;
    const { key } = proof.evidence[3]!;
    rows = otherRows((await record.store.get(key))!.bytes, key);
  });

  test.each(LIES)("%s: the step %s says so", async (_, step, because, made, more = {}) => {
    const { outcomes, says, status } = await provenWith(made(), more);
    expect([outcomes[step], says[step]]).toEqual(["failed", expect.stringMatching(because)]);
    expect(status).toMatch(/^Do not believe this\./);
    // No other step fails that does not rest on the lie.
    const failed = Object.entries(outcomes).filter(([, outcome]) => outcome === "failed");
    expect(failed.map(([name]) => name)).toEqual(expect.arrayContaining([step]));
    expect(failed.length).toBeLessThanOrEqual(2);
  });

  test.each([
    ["no witness", []],
    ["too few witnesses", [north]],
    ["another witness in the place of one", [north, noteSigner("nobody.example/w", 5)]],
  ])("%s: below the policy nothing is believed", async (_, by) => {
    witnesses = by;
    const { outcomes, says } = await provenWith(null);
    witnesses = [north, south];
    expect([outcomes.witnesses, outcomes.inclusion]).toEqual(["failed", "open"]);
    expect(says.witnesses).toMatch(/below the quorum both: no cosignature of/);
  });

  test("a second history: its witnesses are missing, and a browser that has seen the first finds the fork", async () => {
    const context = await contextWith(null);
    try {
      expect((await told(await pressed(context))).outcomes.history).toBe("open");
      upstream = () => forked;
      expect(fork.committer.fold.size).toBe(record.committer.fold.size + 1);
      const other = await told(await pressed(context));
      expect([other.outcomes.history, other.says.history]).toEqual(["failed", expect.stringMatching(/fork/)]);
      witnesses = [];
      expect((await provenWith(null)).outcomes.witnesses).toBe("failed");
    } finally {
      upstream = () => live;
      witnesses = [north, south];
      await context.close();
    }
  });

  test("a module of another hash than the page names is not run", async () => {
    const context = await contextWith(policy);
    lie = replaced(/^\/prove\.mjs/, (body) => Buffer.concat([body, Buffer.from("\n// and one line more\n")]));
    const page = await pressed(context);
    await expect.poll(() => page.locator("#prove-says").textContent()).toMatch(/another hash/);
    expect(await page.locator(".steps").count()).toBe(0);
    lie = null;
    await context.close();
  });

  test("evidence and tiles that are kept back are not shown, and nothing is said for them", async () => {
    const gone = (passing: Passing) =>
      /^\/(?:evidence|tile|hint)\//.test(passing.path) ? { ...passing, status: 404 } : passing;
    const { outcomes } = await provenWith(gone);
    expect(outcomes).toEqual(outcomesBut({ keys: "open", newest: "open", evidence: "open" }));
  });
});

describe.skipIf(missing)("a log that grows", () => {
  test("begins with what the browser saw before; one that goes back is not believed", async () => {
    const context = await contextWith(policy);
    try {
      let before: CardProof | null = null;
      lie = changed((proof) => {
        before = proof;
        return proof;
      });
      expect((await told(await pressed(context))).outcomes.history).toBe("open");
      await record.publish(Array.from({ length: 300 }, (_, i) => listingDraft({ url: `https://new-${i}.example/x` })));
      await live.follower.refresh();
      lie = replaced(/^\/tile\/0\//, (body) => Buffer.from(body.map((byte, i) => (i === 40 ? byte ^ 1 : byte))));
      const broken = await told(await pressed(context));
      expect([broken.outcomes.history, broken.says.history]).toEqual(["failed", expect.stringMatching(/another root/)]);
      lie = null;
      const { outcomes, says } = await told(await pressed(context));
      expect([says, outcomes]).toEqual([says, outcomesBut({ history: "shown" })]);
      expect(says.history).toMatch(/^\. the first \d+ leaves are those .* 300 follow$/);
      expect(says.newest).toContain("2 entry bundles");
      lie = changed(() => before!);
      const back = await told(await pressed(context));
      expect([back.outcomes.history, back.says.history]).toEqual(["failed", expect.stringMatching(/rolled back/)]);
    } finally {
      lie = null;
      await context.close();
    }
  });

  test("a page that was loaded before its endpoint was graded again is told as old, and as no lie", async () => {
    const context = await contextWith(policy);
    const page = await context.newPage();
    await page.goto(`${site.url}/endpoint/${capOf(GOOD)}`);
    const card = cardOf(specOf(GOOD), { band: "C", computed_at: "2026-11-21T11:00:00.000Z" });
    await record.publish(record.grades([card], "C: its price moves too much."));
    await live.follower.refresh();
    await page.locator("#prove-start").click();
    const { outcomes, says } = await told(page);
    expect([outcomes.page, says.page]).toEqual(["open", expect.stringContaining("load the page again")]);
    await context.close();
    const fresh = await told(await pressed(await contextWith(policy)));
    expect(fresh.outcomes.page).toBe("shown");
  });
});
