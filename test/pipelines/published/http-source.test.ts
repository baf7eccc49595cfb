import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { Oversized, SourceDown } from "../../../pipelines/published/errors.ts";
import { HttpSource, type HttpSourceOptions, openSource } from "../../../pipelines/published/open-source.ts";
import { serve } from "../../../serving/main.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { checkPath, servingOver } from "../../helpers/serving.ts";
import { keysOf, Mirror, publishAll, specOf } from "../mirror/testbed.ts";

let record: PublicRecord;
const closing: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 260);
});
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});
afterAll(() => record.close());

const sourceOf = (url: string, more: Partial<HttpSourceOptions> = {}): HttpSource => {
  const source = new HttpSource(url, { clock: new FixedClock(NOW), ...more });
  closing.push(() => source.close());
  return source;
};
const mirror = async (): Promise<Mirror> => {
  const made = await Mirror.open();
  closing.push(() => made.close());
  return made;
};

/** A server on a port of its own. */
async function listening(listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  closing.push(async () => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** The real serving tier over a record. */
async function served(of: PublicRecord): Promise<string> {
  const { app, follower } = await servingOver(of);
  const server = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
  closing.push(
    () => server.close(),
    () => follower.stop(),
  );
  return server.url;
}

/** The same record as a mirror exposes it. */
const exposedBy = (own: Mirror): PublicRecord => Object.create(record, { store: { value: own.publicStore } });

describe("over HTTP", () => {
  it("copies from the real service, and a second mirror from a service over the first", async () => {
    const url = await served(record);
    const own = await mirror();
    const { size } = record.committer.fold;
    expect(await own.run(sourceOf(url), { keys: keysOf(record) })).toMatchObject({ result: "synced", tree_size: size });
    expect(await own.proven(record, true)).toBe(size);

    const again = await served(exposedBy(own));
    const second = await mirror();
    expect(await second.run(sourceOf(`${again}/`))).toMatchObject({ result: "synced", tree_size: size });
    expect(await second.proven(record, true)).toBe(size);

    const path = checkPath(specOf("a0"));
    const [first, last] = await Promise.all([url, again].map(async (base) => (await fetch(base + path)).json()));
    const said = ({ band, why, scorecard }: Record<string, unknown>) => ({ band, why, scorecard });
    expect(said(last as never)).toEqual(said(first as never));
    expect(last).toMatchObject({ band: "B" });
  });

  it("is one GET when there is nothing new", async () => {
    const asked: string[] = [];
    const store = record.store;
    const url = await listening(async (request, response) => {
      asked.push(`${request.method} ${request.url}`);
      // Any static file server: the stored bytes, without a header of ours.
      const object = await store.get(request.url!.slice(1));
      response.statusCode = object ? 200 : 404;
      response.end(object?.bytes);
    });
    const own = await mirror();
    await own.run(sourceOf(url), { keys: keysOf(record) });
    expect(await own.proven(record, true)).toBe(record.committer.fold.size);
    asked.length = 0;
    expect(await own.run(sourceOf(url))).toMatchObject({ result: "idle" });
    expect(asked).toEqual(["GET /checkpoint"]);
  });

  it.each(["checkpoint", "tile/0/000", "tile/entries/000"])("cuts off a body without end: %s", async (key) => {
    let sent = 0;
    let cut: Promise<unknown> = Promise.reject(new Error("not asked"));
    cut.catch(() => undefined);
    const url = await listening((_, response) => {
      cut = once(response, "close");
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(65_536))) sent += 65_536;
      };
      response.on("drain", more);
      more();
    });
    const maxBytes = 1_000_000;
    await expect(sourceOf(url).get(key, maxBytes)).rejects.toThrow(new Oversized(key, maxBytes));
    await cut;
    expect(sent).toBeLessThan(32 * maxBytes);
  });

  it("tries again, waiting as long as the server asks, and reads the whole object then", async () => {
    let asked = 0;
    const url = await listening((_, response) => {
      asked++;
      if (asked === 1) return response.writeHead(503, { "retry-after": "7" }).end();
      if (asked === 2) return response.destroy();
      if (asked === 3) {
        response.writeHead(200, { "content-length": "5" }).write("ab");
        return setTimeout(() => response.destroy(), 5);
      }
      return response.end("whole");
    });
    const clock = new FixedClock(NOW);
    const bytes = await sourceOf(url, { clock }).get("checkpoint", 100);
    expect(Buffer.from(bytes!).toString()).toBe("whole");
    expect(asked).toBe(4);
    expect(clock.now().getTime() - Date.parse(NOW)).toBeGreaterThanOrEqual(7_000);
  });

  it.each<[string, RequestListener, number, RegExp]>([
    ["always 500", (_, response) => void response.writeHead(500).end(), 3, /answered 500 \(3 tries\)/],
    [
      "a redirect",
      (_, response) => void response.writeHead(302, { location: "/x" }).end(),
      1,
      /redirect is not followed/,
    ],
    ["403", (_, response) => void response.writeHead(403).end(), 1, /answered 403/],
    ["silence", () => undefined, 3, /\(3 tries\)/],
    ["a byte now and then", (_, response) => void dripping(response), 3, /\(3 tries\)/],
  ])("gives up on %s", async (what, listener, tries, says) => {
    let asked = 0;
    const url = await listening((request, response) => {
      asked++;
      listener(request, response);
    });
    // Only who never ends is cut off by time: a busy machine may take as long for an honest answer.
    const endless = /silence|byte/.test(what);
    const run = sourceOf(url, { tries: 3, answerMs: endless ? 60 : 20_000 }).get("checkpoint", 100);
    await expect(run).rejects.toThrow(SourceDown);
    await expect(run).rejects.toThrow(says);
    // Cut off by time, a try may end before it arrives; the message counts it all the same.
    if (!endless) expect(asked).toBe(tries);
  });

  it("says of nobody listening what it tried", async () => {
    const run = sourceOf("http://127.0.0.1:1", { tries: 2 }).get("checkpoint", 100);
    await expect(run).rejects.toThrow(/http:\/\/127\.0\.0\.1:1 does not give checkpoint: .*\(2 tries\)/);
  });

  it.each(["ftp://x.example", "http://", "http://x.example/?a=1", "/no/such/folder"])("takes no %s", async (name) => {
    await expect(openSource(name, new FixedClock(NOW))).rejects.toMatchObject({
      code: name.startsWith("/") ? "unreadable" : "usage",
    });
  });
});

function dripping(response: Parameters<RequestListener>[1]): void {
  const timer = setInterval(() => response.write("."), 10);
  response.once("close", () => clearInterval(timer));
}
