import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fromBase64url } from "../../../infra/keys/jwk.ts";
import { openCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { cosignatureLine } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, ED25519, formatVkey, type NoteSigner } from "../../../infra/tree/note.ts";
import { readPolicy } from "../../../infra/tree/policy.ts";
import type { CardBundle } from "../../../pipelines/published/card-bundle.ts";
import { guard, type Service, type ServiceFault } from "../../../serving/client/index.ts";
import { NotProven, witnessPolicy } from "../../../serving/client/proof.ts";
import { liesOf } from "../../helpers/bundle-lies.ts";
import { type LiveService, liveService, now } from "../../helpers/client.ts";
import { POLICIES } from "../../helpers/policies.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../../helpers/public-record.ts";
import { noteSigner } from "../../helpers/witnessed.ts";

const ROOT = resolve(import.meta.dirname, "../../..");
const SUM = { url: "https://seller.example/sum" };
const OTHER = { url: "https://seller.example/other" };
const lite = noteSigner("lite.example/w", 3);
const own = noteSigner("own.example/w", 4);
const nobody = noteSigner("nobody.example/w", 5);
const MINUTE_MS = 60_000;

let record: PublicRecord;
let live: LiveService;
let bundle: CardBundle;
let origin: string;
let keys: { log: string; lite: string; own: string; nobody: string };
let dir: string;
/** The log, and the witness that is its own, as the witness whose lines the lies change. */
let ownPolicy: string;

/** With cosignatures of witnesses that are not the log's, at these minutes from now. */
function cosigned(
  of: CardBundle,
  by: readonly [NoteSigner, number][] = [
    [lite, -2],
    [own, -1],
  ],
): CardBundle {
  const text = `${of.checkpoint.split("\n\n")[0]!}\n`;
  const lines = by.map(([key, minutes]) => cosignatureLine(text, key, new Date(now() + minutes * MINUTE_MS)));
  return { ...of, checkpoint: of.checkpoint + lines.join("") };
}

beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish(
    [SUM, OTHER].map((spec) => listingDraft(spec)),
    record.grades([cardOf(SUM)], "B: it delivers."),
    record.grades([cardOf(OTHER)], "B: it delivers."),
  );
  await record.live([SUM, OTHER].map((spec) => rowOf(spec)));
  live = await liveService(record);
  bundle = (await (await fetch(`${live.url}/v1/trust/${capOf(SUM)}/bundle`)).json()) as CardBundle;
  origin = bundle.checkpoint.split("\n", 1)[0]!;
  const publicKey = (purpose: string) => fromBase64url(record.jwks.keys.find((key) => key.purpose === purpose)!.x)!;
  const log = formatVkey({ name: origin, publicKey: publicKey("log") }, ED25519);
  const [a, b, c] = [lite, own, nobody].map((key) => formatVkey(key, COSIGNATURE));
  keys = { log, lite: a!, own: b!, nobody: c! };
  const theLogs = formatVkey({ name: `${origin}/witness`, publicKey: publicKey("witness") }, COSIGNATURE);
  ownPolicy = `log ${log}\nwitness theirs ${theLogs}\nquorum theirs\n`;
  dir = await mkdtemp(join(tmpdir(), "proof-"));
});
afterAll(async () => {
  await live?.close();
  await record?.close();
  await rm(dir, { recursive: true, force: true });
});

const both = () =>
  `log ${keys.log}\nwitness lite ${keys.lite}\nwitness own ${keys.own}\ngroup g all lite own\nquorum g\n`;
/** `proven`, the reason why not, or null for no policy. */
const verdictOf = async (text: string, of: unknown, at = now(), options = {}): Promise<string | null> => {
  const policy = await witnessPolicy(text, options).catch(() => null);
  if (!policy) return null;
  return policy.prove(of, at).then(
    () => "proven",
    (error: NotProven) => {
      if (!(error instanceof NotProven)) throw error;
      return error.reason;
    },
  );
};

test.each(POLICIES)("a policy, %s: the client says what torchwood and our own reader say", async (_, text, holds) => {
  const verdict = await verdictOf(text(keys), cosigned(bundle));
  expect(verdict === null ? null : verdict === "proven").toBe(holds);
  const ours = (() => {
    try {
      const trust = { log: readPolicy(Buffer.from(text(keys))).logs[0]!, policy: readPolicy(Buffer.from(text(keys))) };
      return openCheckpoint(Buffer.from(cosigned(bundle).checkpoint), trust, new Date(now())).size > 0;
    } catch (error) {
      return (error as { code: string }).code === "usage" ? null : false;
    }
  })();
  expect(ours).toBe(holds);
});

test("what is proven: the card, its place, and since when the quorum has seen it", async () => {
  const proven = await (await witnessPolicy(both())).prove(cosigned(bundle), now());
  expect(proven).toMatchObject({ origin, index: bundle.index, card: { capability_id: capOf(SUM), band: "B" } });
  expect(proven.cosignedAt).toEqual(new Date(Math.floor((now() - 2 * MINUTE_MS) / 1000) * 1000));
});

test("a bundle that lies is proven in none of its ways", async () => {
  expect(await verdictOf(ownPolicy, bundle)).toBe("proven");
  let tried = 0;
  for (const [lie, lying] of liesOf(bundle)) {
    // The log's key is the policy's, not the file's.
    if (lie === "a stranger's log key") continue;
    expect([lie, await verdictOf(ownPolicy, lying)]).toEqual([
      lie,
      expect.stringMatching(/^(?:tampered|unwitnessed)$/),
    ]);
    tried++;
  }
  expect(tried).toBeGreaterThan(15);
  for (const garbage of [null, undefined, 7, "x", [], {}, { ...bundle, leaf: "null" }, { ...bundle, proof: "x" }]) {
    expect(await verdictOf(ownPolicy, garbage)).toBe("tampered");
  }
  expect(await verdictOf(ownPolicy, { ...bundle, keys: { keys: [null] } })).toBe("tampered");
});

test.each<[string, readonly (readonly [NoteSigner, number])[], object, string]>([
  [
    "both in time",
    [
      [lite, -1],
      [own, -1],
    ],
    {},
    "proven",
  ],
  [
    "the older is too old",
    [
      [lite, -90],
      [own, -1],
    ],
    { maxAge_s: 3600 },
    "stale",
  ],
  [
    "the older is just in time",
    [
      [lite, -59],
      [own, -1],
    ],
    { maxAge_s: 3600 },
    "proven",
  ],
  [
    "more than a day, by default",
    [
      [lite, -1441],
      [own, -1],
    ],
    {},
    "stale",
  ],
  [
    "one signed in our future",
    [
      [lite, -1],
      [own, 6],
    ],
    {},
    "unwitnessed",
  ],
  [
    "one a little ahead of our clock",
    [
      [lite, -1],
      [own, 4],
    ],
    {},
    "proven",
  ],
  ["one alone", [[own, -1]], {}, "unwitnessed"],
  [
    "another witness in its place",
    [
      [nobody, -1],
      [own, -1],
    ],
    {},
    "unwitnessed",
  ],
])("%s", async (_, by, options, verdict) => {
  expect(
    await verdictOf(
      both(),
      cosigned(
        bundle,
        by.map(([key, at]) => [key, at]),
      ),
      now(),
      options,
    ),
  ).toBe(verdict);
});

test("what is no policy for a client: without a log, a wrong key id, an ML-DSA-44 key", async () => {
  await expect(witnessPolicy("quorum none\n")).rejects.toThrow("no log line");
  const wrong = keys.lite.replace(/\+[0-9a-f]{8}\+/, "+00000000+");
  await expect(witnessPolicy(`log ${keys.log}\nwitness a ${wrong}\nquorum a\n`)).rejects.toThrow("another key id");
  const mlDsa = `pq.example+00000000+${Buffer.concat([Buffer.of(6), Buffer.alloc(1312)]).toString("base64")}`;
  await expect(witnessPolicy(`log ${keys.log}\nwitness a ${mlDsa}\nquorum a\n`)).rejects.toThrow(
    "line 2: pq.example is an ML-DSA-44 key",
  );
});

describe("a Service with a policy", () => {
  /** The service, whose bundles go through `change` on their way. */
  const through = async (change: (bundle: CardBundle) => CardBundle, policy = both()) =>
    live.client({
      policy: await witnessPolicy(policy),
      fetch: async (input, init) => {
        const answer = await fetch(input, init);
        if (!String(input).endsWith("/bundle") || !answer.ok) return answer;
        return Response.json(change((await answer.json()) as CardBundle));
      },
    });
  const faultOf = (service: Service, url = SUM.url) =>
    service.check({ url }).then(
      () => "believed",
      ({ code, says }: ServiceFault) => `${code}: ${says}`,
    );

  test("believes an answer whose card both have seen, and one without letter and card as it is", async () => {
    const service = await through((one) => cosigned(one));
    expect(await service.check({ url: SUM.url })).toMatchObject({ band: "B" });
    expect(await service.check({ url: "https://nobody.example/x" })).toMatchObject({ band: "UNRATED" });
  });

  test("believes nothing below it, and the guard then refuses", async () => {
    const service = await through((one) => cosigned(one, [[own, -1]]));
    expect(await faultOf(service)).toMatch(/^unproven: unwitnessed: .* no cosignature of lite$/);
    const decision = await guard(service)({ url: SUM.url, method: "GET", offers: [] });
    expect(decision).toMatchObject({ allow: false, outcome: "not_asked", fault: "unproven" });
  });

  test("not the proof of another endpoint's card, nor of another card of this one", async () => {
    const other = (await (await fetch(`${live.url}/v1/trust/${capOf(OTHER)}/bundle`)).json()) as CardBundle;
    expect(await faultOf(await through(() => cosigned(other)))).toMatch(
      /^unproven: tampered: the answer shows another card/,
    );
    const policy = await witnessPolicy(both());
    const answer = await live.client().check({ url: SUM.url });
    const lied = { ...answer, band: "A" as const };
    await expect(policy.proveAnswer(lied, cosigned(bundle), now())).rejects.toThrow(
      "the answer says A, and the card B",
    );
    const { scorecard: _, ...without } = answer;
    await expect(policy.proveAnswer(without, cosigned(bundle), now())).rejects.toThrow("another card");
  });
});

test("in a worker, where there are only the web's own globals, it proves", async () => {
  const { outputFiles } = await build({
    ...{ entryPoints: [join(ROOT, "serving/client/proof.ts")], bundle: true, write: false, minify: true },
    ...{ platform: "browser", format: "iife", globalName: "proof" },
  });
  expect(outputFiles[0]!.text).not.toMatch(/\bnode:|\b(?:Buffer|process|require)\b/);
  const context = createContext({ TextEncoder, TextDecoder, crypto, atob, btoa });
  runInContext(`${outputFiles[0]!.text};globalThis.proof = proof`, context);
  const policy = await context.proof.witnessPolicy(both());
  expect(await policy.prove(cosigned(bundle), now())).toMatchObject({ origin, index: bundle.index });
  await expect(policy.prove(bundle, now())).rejects.toThrow("unwitnessed");
});

describe("docs/verify-a-check.mjs with a policy", () => {
  const run = async (answer: unknown, of: unknown, policy: string, ...more: string[]) => {
    const files = { "answer.json": answer, "keys.json": record.jwks, "bundle.json": of };
    for (const [name, value] of Object.entries(files)) await writeFile(join(dir, name), JSON.stringify(value));
    await writeFile(join(dir, "policy"), policy);
    const words = ["answer.json", "keys.json", "bundle.json", "policy", ...more];
    return promisify(execFile)(process.execPath, [join(ROOT, "docs/verify-a-check.mjs"), ...words], { cwd: dir }).then(
      ({ stdout }) => stdout,
      ({ code, stdout, stderr }) => `${code} ${stdout}${stderr}`,
    );
  };
  const age = String(100 * 365 * 86_400);

  test("says good for an answer whose card the quorum has seen, and BAD with the reason for any other", async () => {
    const answer = await live.client().check({ url: SUM.url });
    expect(await run(answer, cosigned(bundle), both(), age)).toMatch(
      /^good: signed by .*\ngood: .* cosigned by 2 of the policy, since/,
    );
    expect(await run(answer, cosigned(bundle, [[lite, -1]]), both(), age)).toMatch(/^1 good: signed[^\n]*\nBAD: .*own/);
    expect(await run(answer, cosigned(bundle), both(), "60")).toMatch(/^1 good: signed[^\n]*\nBAD: .*ago/);
    const other = await live.client().check({ url: OTHER.url });
    expect(await run(other, cosigned(bundle), both(), age)).toMatch(
      /^1 good: signed[^\n]*\nBAD: the answer shows another card/,
    );
    expect(await run({ ...answer, band: "A" }, cosigned(bundle), both(), age)).toMatch(/^1 BAD: do not believe/);
  });

  test.each(POLICIES)("%s: as torchwood says", async (_, text, holds) => {
    const answer = await live.client().check({ url: SUM.url });
    const said = await run(answer, cosigned(bundle), text(keys), age);
    expect(said).toMatch(
      holds ? /\ngood: / : holds === null ? /^1 good: signed[^\n]*\nBAD: policy/ : /\nBAD: (?!policy)/,
    );
  });

  test("no lie is good", async () => {
    const answer = await live.client().check({ url: SUM.url });
    for (const [lie, lying] of liesOf(bundle)) {
      // It reads neither the file's log key nor, since the answer has the card, the keys of the cards.
      if (/log key|cards key|no keys|endpoint's name/.test(lie)) continue;
      expect([lie, await run(answer, lying, ownPolicy, age)]).toEqual([lie, expect.stringMatching(/^1 [\s\S]*BAD/)]);
    }
  });
});
