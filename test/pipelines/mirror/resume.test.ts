import { once } from "node:events";
import { mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { compress } from "zstd-napi";
import { sha256hex } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { Oversized, SourceDown, Unproven } from "../../../pipelines/published/errors.ts";
import { fetchFile, type NamedFile } from "../../../pipelines/published/files.ts";
import { HttpSource, StoreSource } from "../../../pipelines/published/open-source.ts";
import { MemorySink, PartFolder } from "../../../pipelines/published/sink.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { NOW } from "../../helpers/public-record.ts";

/** Does not pack, so that its packed length is known to be large. */
const packed = compress(
  Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => (Math.imul(i, 2_654_435_761) >>> 24) & 0xff)),
);
const body = Buffer.concat([packed, Buffer.alloc(Math.max(0, 1_200_000 - packed.length))]);
const KEY = "segment/0.ndjson.zst";

let dir: string;
const closing: (() => unknown)[] = [];
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "resume-"));
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
  await rm(dir, { recursive: true, force: true });
});

interface Asked {
  range: string | undefined;
  ifRange: string | undefined;
}

/** A server of `body`; `cut` says after how many bytes of its answer the nth request is cut, if at all. */
async function server(options: {
  /** Waited for before a cut: what is under way in a socket that breaks is lost, and then there is nothing to go on with. */
  until?: (n: number) => Promise<void>;
  cut: (n: number) => number | null;
  etag?: (n: number) => string | null;
  ranges?: boolean;
}) {
  const asked: Asked[] = [];
  const answer = (request: IncomingMessage, response: ServerResponse) => {
    const n = asked.length;
    const { range, "if-range": ifRange } = request.headers;
    asked.push({ range, ifRange: ifRange as string | undefined });
    const etag = options.etag ? options.etag(n) : '"one"';
    if (etag) response.setHeader("etag", etag);
    const from = range && ifRange === etag && options.ranges !== false ? Number(/\d+/.exec(range)![0]) : 0;
    const rest = body.subarray(from);
    response.setHeader("content-length", rest.length);
    if (from > 0) response.setHeader("content-range", `bytes ${from}-${body.length - 1}/${body.length}`);
    response.writeHead(from > 0 ? 206 : 200);
    const cut = options.cut(n);
    if (cut === null) return void response.end(rest);
    response.write(rest.subarray(0, cut));
    void (options.until?.(n) ?? Promise.resolve()).then(() => response.destroy());
  };
  const listening = createServer(answer).listen(0, "127.0.0.1");
  await once(listening, "listening");
  closing.push(() => {
    listening.closeAllConnections();
    listening.close();
  });
  return { url: `http://127.0.0.1:${(listening.address() as AddressInfo).port}`, asked };
}

/** Waits until it is so; a test that waits in vain ends by its own time-out. */
async function eventually(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await setTimeout(5);
}

/** Until something of the object lies on the disk. */
const someArrived = () =>
  eventually(async () => {
    const parts = (await readdir(dir)).filter((name) => !name.endsWith(".json"));
    return parts.length > 0 && (await stat(join(dir, parts[0]!))).size > 0;
  });

const sourceOf = (url: string, tries = 3): HttpSource => {
  const source = new HttpSource(url, { clock: new FixedClock(NOW), tries });
  closing.push(() => source.close());
  return source;
};

describe("a transfer that was cut", () => {
  it("goes on where it was, as often as it gets further", async () => {
    const sink = new MemorySink();
    const arrived: number[] = [];
    const until = async (n: number) => {
      await eventually(() => sink.receivedBytes > (arrived.at(-1) ?? 0) + 65_536);
      arrived[n] = sink.receivedBytes;
    };
    const { url, asked } = await server({ cut: (n) => (n < 6 ? 150_000 : null), until });
    expect(await sourceOf(url, 2).into(KEY, body.length, sink)).toBe(true);
    expect(Buffer.compare(sink.bytes(), body)).toBe(0);
    expect(asked).toHaveLength(7);
    expect(asked[0]).toEqual({ range: undefined, ifRange: undefined });
    for (const [n, { range, ifRange }] of asked.slice(1).entries()) {
      expect(Number(/^bytes=(\d+)-$/.exec(range!)![1])).toBeGreaterThanOrEqual(arrived[n]!);
      expect(ifRange).toBe('"one"');
    }
  });

  it.each([
    ["the object became another one", { etag: (n: number) => `"${n}"` }],
    ["the server names it by a weak etag", { etag: () => 'W/"one"' }],
    ["the server names it by none", { etag: () => null }],
    ["the server knows no ranges", { ranges: false }],
  ])("begins again where %s", async (_, how) => {
    const { url } = await server({ cut: (n) => (n === 0 ? 100_000 : null), ...how });
    expect(Buffer.compare((await sourceOf(url).get(KEY, body.length))!, body)).toBe(0);
  });

  it("is given up when it never gets further, and is bounded as a whole", async () => {
    const { url, asked } = await server({ cut: () => 10 });
    await expect(sourceOf(url, 4).get(KEY, body.length)).rejects.toThrow(SourceDown);
    expect(asked).toHaveLength(4);
    const { url: long } = await server({ cut: () => null });
    await expect(sourceOf(long).get(KEY, 400_000)).rejects.toThrow(Oversized);
  });
});

it.each([
  ["br", KEY],
  ["gzip", KEY],
  ["deflate", "tile/entries/000"],
])("what is sent with content-encoding %s is not what is stored: %s", async (encoding, key) => {
  const listening = createServer((_, response) => {
    response.writeHead(200, { "content-encoding": encoding }).end("x");
  }).listen(0, "127.0.0.1");
  await once(listening, "listening");
  closing.push(() => listening.close());
  const run = sourceOf(`http://127.0.0.1:${(listening.address() as AddressInfo).port}`).get(key, 100);
  await expect(run).rejects.toThrow(`content-encoding ${encoding}`);
});

describe("a mirror that was killed", () => {
  const file: NamedFile = {
    ...{ key: KEY, sha256: sha256hex(body), bytes: body.length },
    ...{ unpacked_sha256: "", unpacked_bytes: 0, rows: 0 },
  };
  /** What a run leaves that ends within the transfer. */
  const killed = async (url: string) => {
    await expect(fetchFile(sourceOf(url, 1), file, new PartFolder(dir))).rejects.toThrow(SourceDown);
    expect(await readdir(dir)).toHaveLength(2);
  };

  it("goes on with the part that it has on the disk", async () => {
    const { url, asked } = await server({ cut: (n) => (n === 0 ? 50_000 : null), until: someArrived });
    await killed(url);
    expect(Buffer.compare(await fetchFile(sourceOf(url), file, new PartFolder(dir)), body)).toBe(0);
    expect(asked[1]!.ifRange).toBe('"one"');
    expect(await readdir(dir)).toEqual([]);
  });

  it("fetches all of it again when the part was damaged, and names the object when that does not hold either", async () => {
    const { url, asked } = await server({ cut: (n) => (n === 0 ? 50_000 : null), until: someArrived });
    await killed(url);
    const part = (await readdir(dir)).find((name) => !name.endsWith(".json"))!;
    await writeFile(join(dir, part), Buffer.alloc(30_000, 7));
    expect(Buffer.compare(await fetchFile(sourceOf(url), file, new PartFolder(dir)), body)).toBe(0);
    expect(asked.at(-1)!.range).toBeUndefined();
    const other = { ...file, sha256: "0".repeat(64) };
    await expect(fetchFile(sourceOf(url), other, new PartFolder(dir))).rejects.toThrow(Unproven);
    expect(await readdir(dir)).toEqual([]);
  });
});

describe("a bucket as a source", () => {
  const stored = async (): Promise<Source> => {
    const store = await openDirectoryStore(dir);
    await store.create(KEY, body);
    const source = new StoreSource("s3://record", store);
    closing.push(() => source.close());
    return source;
  };

  it("gives whole objects and parts, bounded, and null for none", async () => {
    const source = await stored();
    expect(Buffer.compare((await source.get(KEY, body.length))!, body)).toBe(0);
    expect(await source.get("segment/1.ndjson.zst", 10)).toBeNull();
    await expect(source.get(KEY, 10)).rejects.toThrow(Oversized);
    const sink = new MemorySink();
    expect(await source.into!(KEY, body.length, sink)).toBe(true);
    expect(Buffer.compare(sink.bytes(), body)).toBe(0);
    expect(await source.into!("segment/1.ndjson.zst", 10, sink)).toBe(false);
    await expect(source.into!(KEY, 10, sink)).rejects.toThrow(Oversized);
  });

  it("goes on with a part of the same object, and begins again with one of another", async () => {
    const source = await stored();
    const whole = new MemorySink();
    await source.into!(KEY, body.length, whole);
    for (const etag of [whole.etag, '"another"']) {
      const sink = new MemorySink();
      await sink.restart(etag);
      await sink.write(body.subarray(0, 1_000));
      expect(await source.into!(KEY, body.length, sink)).toBe(true);
      expect(Buffer.compare(sink.bytes(), body)).toBe(0);
    }
  });
});
