import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { logId } from "../../infra/tree/checkpoint.ts";
import type { ReadLeaf } from "../../pipelines/published/reader.ts";
import type { GradeLeaf } from "../../pipelines/record/leaf.ts";
import { compressChunks, linesToChunks } from "../../serving/http/encoding.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { fc } from "../helpers/histories.ts";
import { cardOf, listingDraft, ORIGIN, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const ENDPOINTS = 300;
const FEED = "/v1/trust/feed";
const at = (position: number) => `${FEED}?cursor=${logId(ORIGIN)}:${position}`;
const LINK = `<https://touchstone.test${at(2 * ENDPOINTS)}>; rel="next"`;

let record: PublicRecord;
let serving: TestServing;
let whole: string[];
beforeAll(async () => {
  record = await PublicRecord.open();
  const specs = Array.from({ length: ENDPOINTS }, (_, i) => ({ url: `https://s${i}.example/x` }));
  await record.publish(...specs.flatMap((spec) => [[listingDraft(spec)], record.grades([cardOf(spec)], "B.")]));
  serving = await servingOver(record, { limits: { reads_per_minute: 1_000_000 } });
  whole = (await (await serving.get(FEED)).text()).split("\n").slice(0, -1);
});
afterAll(() => record.close());

describe("what every answer of the feed says", () => {
  test.each<[string, string, RequestInit, number]>([
    ["the whole", FEED, {}, 200],
    ["an empty one", at(2 * ENDPOINTS), {}, 200],
    ["HEAD", FEED, { method: "HEAD" }, 200],
    ["HEAD of an empty one", at(2 * ENDPOINTS), { method: "HEAD" }, 200],
  ])("%s names what comes next, its bytes and how it was negotiated", async (_, path, init, status) => {
    const response = await serving.get(path, init);
    expect(response.status).toBe(status);
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({ link: LINK, vary: "Accept-Encoding", "cache-control": "no-cache" });
    const body = await response.text();
    expect(body.length > 0).toBe(path === FEED && init.method !== "HEAD");
    expect(response.headers.get("content-length")).toBeNull();
    for (const method of ["GET", "HEAD"]) {
      const again = await serving.get(path, { method, headers: { "if-none-match": headers.etag! } });
      expect([again.status, await again.text(), again.headers.get("link")]).toEqual([304, "", LINK]);
      expect(again.headers.get("etag")).toBe(headers.etag);
    }
  });

  test("each span and each coding has an ETag of its own", async () => {
    const tags = new Set<string>();
    for (const path of [FEED, at(1), at(7)]) {
      for (const accept of ["identity", "gzip", "zstd"]) {
        const response = await serving.get(path, { method: "HEAD", headers: { "accept-encoding": accept } });
        expect(response.headers.get("content-encoding") ?? "identity").toBe(accept);
        tags.add(response.headers.get("etag")!);
      }
    }
    // From the beginning and from its first leaf are the same bytes to us, and two names do no harm.
    expect(tags.size).toBe(9);
  });

  test("HEAD reads no leaf", async () => {
    const { reader } = serving.follower.snapshot!;
    const leaves = reader.leaves.bind(reader);
    reader.leaves = () => {
      throw new Error("read");
    };
    try {
      expect((await serving.get(FEED, { method: "HEAD" })).status).toBe(200);
    } finally {
      reader.leaves = leaves;
    }
  });

  test("a cursor past the end is told so, and when to ask again", async () => {
    for (const position of [2 * ENDPOINTS + 1, 999_999_999_999_999]) {
      const response = await serving.get(at(position));
      expect([response.status, response.headers.get("retry-after")]).toEqual([503, "2"]);
      const problem = ProblemDocument.parse(await response.json());
      const detail = `the cursor is at ${position}, this replica has read 600 leaves`;
      expect(problem).toMatchObject({ type: "/docs/api#not-ready", detail, errors: [{ pointer: "/cursor", detail }] });
    }
  });
});

test("a client that was cut anywhere goes on from its last whole line, and misses and repeats nothing", () =>
  fc.assert(
    fc.asyncProperty(fc.array(fc.nat({ max: ENDPOINTS }), { maxLength: 4 }), async (cuts) => {
      const got: string[] = [];
      let path = FEED;
      for (const cut of [...cuts, ENDPOINTS]) {
        const lines = (await (await serving.get(path)).text()).split("\n").slice(0, -1).slice(0, cut);
        got.push(...lines);
        const last = lines.at(-1);
        if (last) path = at((JSON.parse(last) as GradeLeaf).index + 1);
      }
      expect(got).toEqual(whole);
    }),
    { numRuns: 15 },
  ));

test.each(["identity", "gzip", "zstd"] as const)(
  "%s: lines that are in memory, taken as fast as they are made, leave others their turns",
  async (coding) => {
    const CHUNKS = 200;
    const line = "x".repeat(64 * 1024);
    const lines = Array.from({ length: CHUNKS }, () => line);
    let turns = 0;
    let over = false;
    const others = (): void => {
      turns++;
      if (!over) setImmediate(others);
    };
    setImmediate(others);
    for await (const chunk of compressChunks(linesToChunks(lines), coding)) expect(chunk.length).toBeGreaterThan(0);
    over = true;
    expect(turns).toBeGreaterThan(CHUNKS / 2);
  },
);

describe("a reader that is slow", () => {
  /** Bytes of lines that are taken from the log ahead of what a client has taken, in its own coding. */
  const AHEAD = 1024 * 1024;

  test.each(["identity", "gzip", "zstd"] as const)(
    "%s: no more than a megabyte is read ahead of it",
    async (coding) => {
      let read = 0;
      async function* lines() {
        // Text that does not pack well, so that packed and unpacked bytes can be compared.
        for (;;) {
          const line = randomBytes(1_300).toString("base64");
          read += line.length + 1;
          yield line;
        }
      }
      const body = ReadableStream.from(compressChunks(linesToChunks(lines()), coding)).getReader();
      let taken = 0;
      let most = 0;
      while (taken < 4 * AHEAD) {
        taken += ((await body.read()).value as Uint8Array).length;
        // Everything that goes on by itself has had its turns by then.
        await new Promise((resolve) => setTimeout(resolve, 2));
        most = Math.max(most, read - taken);
      }
      // base64 packs to three quarters, which the client has not been behind with.
      expect(most - taken / 3).toBeLessThan(AHEAD);
      await body.cancel();
      const ended = read;
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(read - ended).toBeLessThanOrEqual(AHEAD);
    },
  );

  test("the log's objects are read one bundle ahead at most", async () => {
    const { reader } = serving.follower.snapshot!;
    const entries = reader.entries.bind(reader);
    const bundles: number[] = [];
    reader.entries = (n) => {
      bundles.push(n);
      return entries(n);
    };
    try {
      const response = await serving.get(FEED);
      const body = response.body!.getReader();
      const first = Buffer.from((await body.read()).value!)
        .toString("utf8")
        .split("\n")[0]!;
      expect((JSON.parse(first) as GradeLeaf).index).toBe(
        whole.length ? (JSON.parse(whole[0]!) as GradeLeaf).index : -1,
      );
      await new Promise((resolve) => setTimeout(resolve, 30));
      expect(bundles.length).toBeLessThanOrEqual(2);
      await body.cancel();
    } finally {
      reader.entries = entries;
    }
  });

  test("the leaves that wait for a client never grow: 20,000 lines through a client that takes one chunk at a time", async () => {
    const { reader } = serving.follower.snapshot!;
    const leaves = reader.leaves.bind(reader);
    const { value } = await leaves(1, 2).next();
    let given = 0;
    reader.leaves = async function* () {
      for (; given < 20_000; given++) yield value as ReadLeaf;
    };
    try {
      const body = (await serving.get(FEED)).body!.getReader();
      const line = value!.bytes.length + 1;
      let taken = 0;
      for (;;) {
        const { done, value: chunk } = await body.read();
        if (done) break;
        taken += chunk.length;
        await new Promise((resolve) => setImmediate(resolve));
        expect(given * line - taken).toBeLessThan(512 * 1024);
      }
      expect(taken).toBe(20_000 * line);
    } finally {
      reader.leaves = leaves;
    }
  });
});

describe("objects", () => {
  const TILE = "/tile/0/000";

  test("If-Modified-Since of what never changes, unless If-None-Match is there", async () => {
    const first = await serving.get(TILE);
    const modified = first.headers.get("last-modified")!;
    expect(Date.parse(modified)).toBeGreaterThan(0);
    const ask = async (headers: Record<string, string>) => (await serving.get(TILE, { headers })).status;
    expect(await ask({ "if-modified-since": modified })).toBe(304);
    expect(await ask({ "if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT" })).toBe(200);
    expect(await ask({ "if-modified-since": "yesterday" })).toBe(200);
    expect(await ask({ "if-modified-since": modified, "if-none-match": '"other"' })).toBe(200);
  });

  test("the checkpoint is swapped within a second: only its ETag says that it is the same", async () => {
    const { headers } = await serving.get("/checkpoint");
    expect(headers.get("last-modified")).toBeNull();
    const later = new Date(Date.now() + 86_400_000).toUTCString();
    expect((await serving.get("/checkpoint", { headers: { "if-modified-since": later } })).status).toBe(200);
    const same = await serving.get("/checkpoint", { headers: { "if-none-match": headers.get("etag")! } });
    expect([same.status, same.headers.get("cache-control")]).toEqual([304, "no-store"]);
  });

  test("a Range of a HEAD means nothing: the headers are those of the whole", async () => {
    const head = await serving.get(TILE, { method: "HEAD", headers: { range: "bytes=0-9" } });
    expect([head.status, head.headers.get("content-length")]).toEqual([200, String(256 * 32)]);
    const part = await serving.get(TILE, { headers: { range: "bytes=0-9" } });
    expect([part.status, part.headers.get("content-length")]).toEqual([206, "10"]);
  });
});
