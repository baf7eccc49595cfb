import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { type Store, StoreRefused, StoreUnfit } from "../../../infra/store/store.ts";
import { SourceDown } from "../../../pipelines/published/errors.ts";
import { CHECKPOINT } from "../../../pipelines/published/objects.ts";
import { HttpSource, StoreSource } from "../../../pipelines/published/open-source.ts";
import { MemorySink } from "../../../pipelines/published/sink.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, Mirror, publishAll } from "../mirror/testbed.ts";

/** A bucket that anybody reads and nobody lists: it answers 403 for what is missing. */
let record: PublicRecord;
const closing: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 20);
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
afterAll(() => record.close());

const DENIED = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>no</Message></Error>';
const MISSING = "index/999.json";

type Answer = { status: number; body?: string | Uint8Array } | null;

/** The record as a bucket hands it out, but where `unlike` has another answer. */
async function bucket(unlike: (key: string, n: number) => Answer = () => null): Promise<HttpSource> {
  let n = 0;
  const listener: RequestListener = async (request, response) => {
    const key = request.url!.slice(1);
    const object = await record.store.get(key);
    const own = object ? { status: 200, body: object.bytes } : { status: 403, body: DENIED };
    const { status, body = "" } = unlike(key, n++) ?? own;
    response.writeHead(status).end(body);
  };
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const source = new HttpSource(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, {
    clock: new FixedClock(NOW),
    tries: 2,
  });
  closing.push(async () => {
    await source.close();
    server.closeAllConnections();
    server.close();
  });
  return source;
}

describe("over HTTP", () => {
  it("what is missing is missing, in memory and into a file, and what is there is read", async () => {
    const source = await bucket();
    expect(await source.get(MISSING, 100)).toBeNull();
    expect(await source.into(MISSING, 100, new MemorySink())).toBe(false);
    expect(Buffer.from((await source.get(CHECKPOINT, 10_000))!)).toEqual((await record.store.get(CHECKPOINT))!.bytes);
  });

  it("a mirror is whole, and what the bucket lost is missing and not taken for a bucket that is down", async () => {
    const own = await Mirror.open();
    closing.push(() => own.close());
    const { size } = record.committer.fold;
    const [shard] = await record.store.list("index/shard/");
    const lost = shard!.key;
    const summary = await own.run(await bucket((key) => (key === lost ? { status: 403, body: DENIED } : null)), {
      keys: keysOf(record),
    });
    expect(summary).toMatchObject({ result: "synced", tree_size: size, missing: [{ key: expect.any(String) }] });
    expect(await own.run(await bucket())).toMatchObject({ missing: [] });
    expect(await own.proven(record, true)).toBe(size);
  });

  it.each<[string, (key: string, n: number) => Answer]>([
    ["the server has 404 for what is missing", (key) => ({ status: key === MISSING ? 403 : 404, body: DENIED })],
    ["nothing can be read", () => ({ status: 403, body: DENIED })],
    ["a page of a firewall", (key) => (key === MISSING ? { status: 403, body: "<html>Forbidden</html>" } : null)],
    ["a firewall before everything", () => ({ status: 403, body: "<html>Forbidden</html>" })],
    ["a refusal without words", (key) => (key === MISSING ? { status: 403 } : null)],
    ["a refusal without end", (key) => (key === MISSING ? { status: 403, body: "x".repeat(100_000) + DENIED } : null)],
    ["a refusal that passed", (key, n) => (key === MISSING && n > 0 ? { status: 200, body: "{}" } : null)],
    ["401", (key) => (key === MISSING ? { status: 401, body: DENIED } : null)],
  ])("down: %s", async (_what, unlike) => {
    await expect((await bucket(unlike)).get(MISSING, 100)).rejects.toThrow(SourceDown);
  });

  it("a checkpoint that is refused is never a record without one", async () => {
    const source = await bucket((key) => (key === CHECKPOINT ? { status: 403, body: DENIED } : null));
    await expect(source.get(CHECKPOINT, 10_000)).rejects.toThrow(SourceDown);
  });

  it("a bucket that is busy at the second look is asked again", async () => {
    const source = await bucket((key, n) => (key !== MISSING && n < 3 ? { status: 503 } : null));
    expect(await source.get(MISSING, 100)).toBeNull();
  });
});

describe("with credentials that may not list", () => {
  /** @param readable what these credentials may read */
  const refusing = (readable: (key: string) => boolean): StoreSource => {
    const ask =
      <T>(work: (key: string) => Promise<T | null>) =>
      async (key: string): Promise<T | null> => {
        const found = readable(key) ? await work(key) : null;
        if (found === null) throw new StoreRefused(`reading ${key}: the store refuses us`);
        return found;
      };
    const { store } = record;
    const own: Store = Object.create(store, {
      get: { value: ask((key) => store.get(key)) },
      head: { value: ask((key) => store.head(key)) },
      getRange: { value: ask((key) => store.getRange(key, 0, 1)) },
    });
    return new StoreSource("s3://bucket", own);
  };

  it("what is missing is missing", async () => {
    const source = refusing(() => true);
    expect(await source.get(MISSING, 100)).toBeNull();
    expect(await source.into(MISSING, 100, new MemorySink())).toBe(false);
    expect(await source.get(CHECKPOINT, 10_000)).not.toBeNull();
  });

  it("credentials that open nothing are said to be that", async () => {
    const source = refusing(() => false);
    for (const key of [MISSING, CHECKPOINT]) await expect(source.get(key, 100)).rejects.toThrow(StoreUnfit);
  });
});
