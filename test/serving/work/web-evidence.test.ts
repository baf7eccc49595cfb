import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import canonicalize from "canonicalize";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { readEnvelope } from "../../../pipelines/record/envelope.ts";
import { type EvidenceAnswer, SEEN_FROM } from "../../../serving/schemas/evidence.ts";
import { EvidenceBodies } from "../../../serving/work/evidence-bodies.ts";
import { Receipts } from "../../../serving/work/receipts.ts";
import { webEvidence } from "../../../serving/work/web-evidence.ts";
import { did, NOW, page, refusal, type World, worldOf } from "./world.ts";

const TERMS = "<html><title>Terms</title><p>The money comes back within 30 days &#x1F600;.</html>";
const LONG = "x".repeat(900);

let world: World;
beforeAll(async () => {
  world = await worldOf({
    "/terms": page(TERMS, {
      "content-type": "text/html; charset=utf-8",
      etag: '"1"',
      "set-cookie": "session=secret",
      "x-request-id": "17",
      link: LONG,
    }),
    "/packed": page(gzipSync(TERMS), { "content-type": "text/html", "content-encoding": "gzip" }),
    "/moved": page("gone on", { location: "/again#there", "content-type": "text/plain" }, 301),
    "/again": page("on", { location: "/terms?x=1" }, 302),
    "/round": page("round", { location: "/round" }, 302),
    "/inside": page("in", { location: "http://192.168.1.1/" }, 302),
    "/large": page(Buffer.alloc(2 ** 20 + 1, 98), { "content-type": "text/plain" }),
    "/json": page('{"price": "0.02"}', { "content-type": "application/json" }),
    "/picture": page(Buffer.from([0x89, 0x50, 0x4e, 0x47, 0, 0, 0]), { "content-type": "image/png" }),
    "/empty": page("", {}, 204),
    "/proto": page("x", { "content-type": "text/plain", ["__proto__"]: "y", constructor: "z" }),
    "/reset": (_, response) => void response.destroy(),
    "/huge": page(Buffer.alloc(6 * 1024 * 1024, 97)),
  });
});
afterAll(() => world.close());
afterEach(() => void vi.restoreAllMocks());

const hash = (bytes: string | Buffer) => createHash("sha256").update(bytes).digest("hex");
const answerOf = (path: string, more: object = {}): Promise<EvidenceAnswer> =>
  did(webEvidence, { url: `${world.origin}${path}`, ...more }, world);
const receiptOf = async (path: string, more: object = {}) => (await answerOf(path, more)).receipt;
const idOf = ({ body }: EvidenceAnswer): string => body.href!.split("/").at(-1)!;

describe("a receipt", () => {
  test("says what was answered, and by whom, and leaves nothing out in silence", async () => {
    const { signature, took_ms, salt, ...receipt } = await receiptOf("/terms?a=1#part");
    const hop = { url: `${world.origin}/terms?a=1`, status: 200, location: null, address: "127.0.0.1", tls: null };
    const { headers, ...said } = receipt;
    expect(said).toEqual({
      schema: "svc.evidence.receipt.v2",
      url: `${world.origin}/terms?a=1#part`,
      final_url: `${world.origin}/terms?a=1`,
      hops: [hop],
      status: 200,
      body: { sha256: hash(TERMS), bytes: Buffer.byteLength(TERMS) },
      excerpt: "The money comes back within 30 days 😀.",
      excerpt_missing: null,
      compared: null,
      seen_from: SEEN_FROM,
      fetched_at: NOW,
      answered_at: NOW,
      signing_key_id: world.signer.kid,
      canonicalization: "RFC8785",
    });
    expect(headers).toEqual(
      expect.arrayContaining([
        { name: "content-type", value: "text/html; charset=utf-8" },
        { name: "etag", value: '"1"' },
        { name: "link", value: LONG },
        { name: "x-request-id", value: "17" },
      ]),
    );
    expect(JSON.stringify(receipt)).not.toContain("secret");
    expect([took_ms >= 0, signature.length, salt.length]).toEqual([true, 86, 64]);
  });

  test("compares with what was seen before", async () => {
    const same = await receiptOf("/terms", { compare_to: hash(TERMS) });
    expect(same.compared).toEqual({ to: hash(TERMS), result: "same" });
    const other = await receiptOf("/terms", { compare_to: hash("older") });
    expect(other.compared).toEqual({ to: hash("older"), result: "different" });
  });

  test("follows redirects and names each hop; one too many is an answer that redirects", async () => {
    const { hops, ...receipt } = await receiptOf("/moved");
    expect(hops.map(({ url, status, location }) => [url, status, location])).toEqual([
      [`${world.origin}/moved`, 301, "/again#there"],
      [`${world.origin}/again`, 302, "/terms?x=1"],
      [`${world.origin}/terms?x=1`, 200, null],
    ]);
    expect([receipt.final_url, receipt.body.sha256]).toEqual([`${world.origin}/terms?x=1`, hash(TERMS)]);
    const round = await receiptOf("/round");
    expect([round.hops.length, round.status, round.hops[3]!.location]).toEqual([4, 302, "/round"]);
  });

  test("is about decoded bytes", async () => {
    expect((await receiptOf("/packed")).body.sha256).toBe(hash(TERMS));
  });

  test.each<[string, number, string | null, RegExp | null]>([
    ["/json", 200, '{"price": "0.02"}', null],
    ["/nowhere", 404, "nothing here", null],
    ["/picture", 200, null, /it is not/],
    ["/empty", 204, null, /the body is empty/],
    ["/proto", 200, "x", null],
  ])("of %s too", async (path, status, excerpt, missing) => {
    const receipt = await receiptOf(path);
    expect([receipt.status, receipt.excerpt]).toEqual([status, excerpt]);
    if (missing) expect(receipt.excerpt_missing).toMatch(missing);
    else expect(receipt.excerpt_missing).toBeNull();
    const { signature, ...signed } = receipt;
    const again = world.signer.sign(Buffer.from(canonicalize(signed)!));
    expect(signature).toBe(Buffer.from(again).toString("base64url"));
  });

  test("is told to the log by its hash alone, and no two receipts of one page have one hash", async () => {
    const [one, two] = [await answerOf("/terms"), await answerOf("/terms")];
    const told = world.log.records.slice(-2).map(({ value, topic }) => [topic, readEnvelope(value)]);
    const hashes = [one, two].map(({ receipt }) => hash(canonicalize(receipt)!));
    expect([one.receipt_sha256, two.receipt_sha256]).toEqual(hashes);
    expect(new Set(hashes).size).toBe(2);
    expect(told).toEqual(
      hashes.map((sha256) => [
        "observations.paid",
        { ok: true, envelope: expect.objectContaining({ type: "web.receipt", key: sha256, body: { sha256 } }) },
      ]),
    );
    expect(one.proof).toEqual({
      href: `https://us.example/v1/web/evidence/receipts/${hashes[0]}`,
      by: "2026-11-23T10:02:00.000Z",
    });
  });
});

describe("the body", () => {
  test("stands in the answer up to 1 MiB, and is kept whole", async () => {
    const small = await answerOf("/packed");
    expect(Buffer.from(small.body.base64!, "base64").toString()).toBe(TERMS);
    expect((await world.bodies.read(idOf(small)))!.toString()).toBe(TERMS);
    expect(small.body.kept_until).toBe("2026-12-24T00:00:00.000Z");
    const large = await answerOf("/large");
    expect([large.body.base64, hash((await world.bodies.read(idOf(large)))!)]).toEqual([
      null,
      large.receipt.body.sha256,
    ]);
    expect((await answerOf("/empty")).body).toEqual({ base64: "", href: null, kept_until: null });
  });

  test("is read until its 30 days are over, and swept then; others stay", async () => {
    const id = idOf(await answerOf("/terms"));
    const before = (await world.store.list("seen/")).length;
    try {
      world.clock.set("2026-12-23T23:59:59.999Z");
      expect([await world.bodies.sweep(), (await world.bodies.read(id))?.length]).toEqual([
        0,
        Buffer.byteLength(TERMS),
      ]);
      world.clock.set("2026-12-24T00:00:00.000Z");
      const fresh = idOf(await answerOf("/terms"));
      // Not swept yet, and gone all the same.
      expect(await world.bodies.read(id)).toBeNull();
      expect(await world.bodies.sweep()).toBe(before);
      expect((await world.store.list("seen/")).map(({ key }) => key)).toEqual([`seen/2026-12-24/${fresh}`]);
    } finally {
      world.clock.set(NOW);
    }
  });

  test.each([["../record.json"], ["20261123-short"], ["20261123-7K3M0000000000000000000000"], [""]])(
    "nobody reads another object as %j",
    async (id) => expect(await world.bodies.read(id)).toBeNull(),
  );
});

/** What goes wrong beside the address: what the buyer is told, who was asked, and what is left behind. */
describe("a fault of ours is a 503 that costs nothing", () => {
  const told = (deps: Partial<World> = {}) =>
    refusal(webEvidence, { url: `${world.origin}/terms` }, { ...world, ...deps });

  test("the store takes no body: nothing is told to the log", async () => {
    vi.spyOn(world.store, "create").mockRejectedValueOnce(new Error("disk full at /secret/path"));
    const before = world.log.records.length;
    const [code, status, , says] = await told();
    expect([code, status, says]).toEqual(["unavailable", 503, "the body cannot be kept now; nothing is charged"]);
    expect(world.log.records.length).toBe(before);
  });

  test("the log takes no record: the body that was kept goes with its day", async () => {
    world.log.down = true;
    try {
      expect((await told()).slice(0, 2)).toEqual(["log_unavailable", 503]);
    } finally {
      world.log.down = false;
    }
  });

  test("no room: nothing is fetched", async () => {
    const fetched = vi.spyOn(world.egress, "fetch");
    const { store, clock, log } = world;
    await answerOf("/terms");
    fetched.mockClear();
    const bodies = new EvidenceBodies({
      ...{ store, clock, logger: createLogger("silent"), metrics: createMetrics(), maxBytes: 1 },
    });
    await bodies.sweep();
    const receipts = new Receipts({ log, bodies, clock, baseUrl: "https://us.example" });
    expect((await told({ receipts })).slice(0, 2)).toEqual(["unavailable", 503]);
    expect(fetched).not.toHaveBeenCalled();
  });

  test("no room for more of one wallet, or of one network, than is free for all others", async () => {
    const clock = new FixedClock(NOW);
    const store = { ...world.store, create: async () => ({ result: "created" as const }) };
    const deps = { store, clock, logger: createLogger("silent"), metrics: createMetrics() };
    const bodies = new EvidenceBodies({ ...deps, maxBytes: 1_000 });
    const body = Buffer.alloc(400);
    const buyer = { payer: "0xa", client: "net a" };
    const refuses = (holder: object) => {
      try {
        bodies.refuseWhenFull(holder);
        return null;
      } catch (error) {
        return (error as Error).message;
      }
    };
    await bodies.keep(body, buyer);
    expect(refuses(buyer)).toBeNull();
    await bodies.keep(body.subarray(0, 100), buyer);
    for (const one of [buyer, { ...buyer, payer: "0xb" }, { ...buyer, client: "net b" }])
      expect(refuses(one)).toMatch(/of your wallet or network/);
    expect(refuses({ payer: "0xb", client: "net b" })).toBeNull();
    clock.set(new Date(Date.parse(NOW) + 32 * 86_400_000));
    expect(refuses(buyer)).toBeNull();
    await bodies.keep(Buffer.alloc(1_000), { payer: "0xb", client: "net b" });
    expect(refuses({ payer: "0xc", client: "net c" })).toMatch(/of others/);
  });

  test("a kept body that is lost is gone, and one that is damaged is never given", async () => {
    const id = idOf(await answerOf("/terms"));
    const key = `seen/2026-11-23/${id}`;
    const object = (await world.store.get(key))!;
    const flipped = Buffer.from(object.bytes);
    flipped[40]! ^= 1;
    await world.store.swap(key, flipped, object.etag);
    await expect(world.bodies.read(id)).rejects.toMatchObject({ code: "unavailable" });
    await world.store.delete(key);
    expect(await world.bodies.read(id)).toBeNull();
  });
});

describe("what is no evidence is a problem", () => {
  test.each<[string, object, string, string[], RegExp]>([
    ["no url", {}, "bad_request", ["/url"], /url/],
    ["a field that is not named", { url: "ORIGIN/terms", follow: true }, "bad_request", ["/follow"], /follow/],
    [
      "a hash that is none",
      { url: "ORIGIN/terms", compare_to: "ABC" },
      "bad_request",
      ["/compare_to"],
      /64 lower-case/,
    ],
    ["an address of a private network", { url: "http://192.168.1.1/" }, "bad_request", ["/url"], /never fetched/],
    ["a redirect into a private network", { url: "ORIGIN/inside" }, "not_fetched", ["/url"], /redirect/],
    ["a name that is not one of the internet", { url: "http://x.internal/" }, "bad_request", ["/url"], /internal/],
    ["an answer that breaks off", { url: "ORIGIN/reset" }, "not_fetched", ["/url"], /no whole answer/],
    ["an answer that is too large", { url: "ORIGIN/huge" }, "not_fetched", ["/url"], /5242880 bytes/],
    ["nobody there", { url: "http://127.0.0.1:1/" }, "not_fetched", ["/url"], /no whole answer/],
  ])("%s", async (_, body, code, pointers, says) => {
    const sent = JSON.parse(JSON.stringify(body).replaceAll("ORIGIN", world.origin)) as unknown;
    const told = await refusal(webEvidence, sent, world);
    expect([told[0], told[2]]).toEqual([code, pointers]);
    expect(told[3]).toMatch(says);
  });
});
