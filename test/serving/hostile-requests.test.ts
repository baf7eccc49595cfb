import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { StoreDown } from "../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { SourceDown } from "../../pipelines/published/errors.ts";
import { OBJECTS } from "../../pipelines/published/objects.ts";
import { queryOf } from "../../serving/http/problem.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { createMirrorApp } from "../../serving/mirror-app.ts";
import type { Operation } from "../../serving/operations/operation.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { ProblemDocument } from "../../serving/schemas/common.ts";
import { EMPTY_DAY_ID, emptyDayDraft } from "../helpers/archive-draft.ts";
import { fc } from "../helpers/histories.ts";
import { leastProcessorMs } from "../helpers/processor.ts";
import { capOf, cardOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/**
 * What a stranger may send: nothing of it is a 500, and nothing of it is an error in our log, where it would hide a fault
 * of ours. Sent over sockets, byte by byte as written, since url parsers clean up what they send.
 */
const SUM = { url: "https://seller.example/sum" };
const errors: unknown[] = [];
const logger = Object.assign(createLogger("silent"), { error: (line: unknown) => errors.push(line) });
const metrics = createMetrics();

let record: PublicRecord;
let service: Serving;
let mirror: Serving;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  await record.publish([emptyDayDraft(record.keys.cards)]);
  const limits = { checks_per_minute: 1e9, reads_per_minute: 1e9, disputes_per_hour: 1e9 };
  const { app } = await servingOver(record, { logger, metrics, limits });
  service = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
  mirror = await serve({ app: createMirrorApp(record.store, logger), port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await service.close();
  await mirror.close();
  await record.close();
});
afterEach(() => expect(errors.splice(0)).toEqual([]));

/** The status of an answer to these bytes; 0 where the socket was closed without one. */
const statusOf = (port: number, text: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1", () => socket.write(Buffer.from(text, "latin1")));
    let got = "";
    socket.on("data", (chunk) => {
      got += chunk.toString("latin1");
      if (got.includes("\r\n")) socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(Number(/^HTTP\/1\.1 (\d{3})/.exec(got)?.[1] ?? 0)));
  });
const asked = (port: number, path: string, headers = "", method = "GET"): Promise<number> =>
  statusOf(port, `${method} ${path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n${headers}\r\n`);

const post = (path: string, body: string): string =>
  `POST ${path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

const MANY = "9".repeat(300);
const LONG = `${"x123/".repeat(200)}123`;

describe("an object that cannot be there is a 404, of the service and of a mirror", () => {
  test.each([
    ["a segment of 300 digits", `/segment/${MANY}.ndjson.zst`],
    ["the same without an ending", `/segment/${MANY}`],
    ["a tile of 300 digits", `/tile/0/${MANY}`],
    ["a tile of 200 groups", `/tile/0/${LONG}`],
    ["a partial one", `/tile/0/${LONG}.p/255`],
    ["entries of 200 groups", `/tile/entries/${LONG}`],
    ["a level of 300 digits", `/tile/${MANY}/000`],
    ["a tile below a tile", "/tile/0/000/000"],
    ["a tile below a partial one", "/tile/0/000.p/2/3"],
    ["an index of 300 digits", `/index/${MANY}.json`],
    ["keys of 300 digits", `/keys/${MANY}.json`],
    ["a live table of 600 digits", `/live/${MANY}.${MANY}.arrow`],
    ["a history of 300 digits", `/live/history/1.${MANY}.arrow`],
    ["a subject of 300 letters", `/archive/${"a".repeat(300)}/2026-01-01.0123456789abcdef.ndjson.zst`],
    ["evidence of 300 digits", `/evidence/2026-99-99/${MANY}.0123456789abcdef.ndjson.zst`],
    ["a NUL", "/segment/%00"],
    ["a NUL at the end", "/segment/0.ndjson.zst%00"],
    ["a climb", "/segment/../../../../etc/passwd"],
    ["an escaped climb", "/segment/%2e%2e/%2e%2e/private"],
    ["a climb by backslashes", "/segment/..%5c..%5cprivate"],
    ["an empty segment", "/segment//0.ndjson.zst"],
    ["a slash too many", "/checkpoint/"],
    ["nothing but digits", `/${MANY}`],
  ])("%s", async (_, path) => {
    expect([await asked(service.port, path), await asked(mirror.port, path)]).toEqual([404, 404]);
  });
});

describe("what is no request of ours has its own answer", () => {
  test.each<[string, string, number]>([
    ["a page of 300 digits", `/v1/archive?page=${MANY}`, 400],
    ["a page below 1", "/v1/archive?page=-1", 400],
    ["a page far past the end", "/v1/archive?page=999999999", 200],
    ["a page of the table of 300 digits", `/?page=${MANY}`, 400],
    ["a cursor of 300 digits", `/v1/trust/feed?cursor=${"a".repeat(16)}:${MANY}`, 400],
    ["a cursor of another log", `/v1/trust/feed?cursor=${"a".repeat(16)}:999999999999999`, 400],
    ["an id of 300 digits", `/v1/trust/cap_${MANY}`, 400],
    ["an archive id of 300 digits", `/v1/archive/arc_${MANY}`, 400],
    ["a NUL in a path", "/docs/%00", 404],
    ["a NUL in an id", "/v1/trust/%00", 400],
    ["a NUL in a query", "/v1/check?url=%00", 400],
    ["an escape that is none", "/v1/trust/%zz", 400],
    ["an escape that is cut", "/docs/a%f", 400],
    ["bytes that are no UTF-8", "/docs/%ff%fe", 400],
    ["bytes above ASCII, unescaped", "/docs/\u00ff\u00fe", 404],
    ["an escape that is none in a query", "/v1/check?url=%zz", 400],
    ["a url of garbage", "/v1/check?url=http://%00%ff", 400],
    ["a url with a port of 300 digits", `/v1/check?url=http://h.example:${MANY}/`, 400],
    ["a url with a name of 300 labels", `/v1/check?url=http://${"a.".repeat(300)}example/`, 200],
    ["a name that hides Object's", "/docs/__proto__", 404],
    ["another one", "/docs/constructor", 404],
    ["a query that hides it", "/v1/check?__proto__=1&constructor=2&url=cap_", 400],
    ["a query that is repeated", "/v1/check?url=a&url=b", 400],
    ["an absolute address", "http://other.example/livez", 200],
    ["an absolute address that is none", "http://[::1/livez", 200],
    ["an asterisk", "*", 404],
    ["nothing but slashes", "////////", 404],
    ["a fragment", "/livez#x", 200],
  ])("%s", async (_, path, status) => {
    const got = await asked(service.port, path);
    expect(got).toBeLessThan(500);
    expect([status, 400, 404]).toContain(got);
  });

  const DEEP = `${"[".repeat(20_000)}${"]".repeat(20_000)}`;
  test.each([
    ["/v1/evaluate", `{"status":200,"schema":{"a":${DEEP}}}`],
    ["/v1/evaluate", `{"status":200,"expect":{"jsonpath":{"path":"$","value":${DEEP}}}}`],
  ])("a body to %s that is nested 20,000 deep", async (path, body) => {
    expect(await statusOf(service.port, post(path, body))).toBe(400);
  });

  test("a query that repeats one name 30,000 times is not copied for each", () => {
    const search = new URLSearchParams("a&".repeat(30_000));
    const costMs = leastProcessorMs(3, () => expect(queryOf(search).a).toHaveLength(30_000));
    // With a copy of the list for each value it took some 9 s of a processor.
    expect(costMs).toBeLessThan(2_000);
  });

  const SEGMENT = "/segment/0.ndjson.zst";
  test.each([
    ["from 300 digits", `bytes=${MANY}-`],
    ["to 300 digits", `bytes=0-${MANY}`],
    ["of the last 300 digits", `bytes=-${MANY}`],
    ["from the largest number that is read", "bytes=999999999999999-"],
    ["to it", "bytes=0-999999999999999"],
    ["above what a number holds", "bytes=9007199254740993-9007199254740993"],
    ["in another notation", "bytes=1e3-"],
    ["of dashes", "bytes=--"],
    ["of 501 parts", `bytes=${"0-0,".repeat(500)}1-1`],
  ])("a range %s", async (_, range) => {
    for (const path of ["/tile/0/000.p/3", "/tile/entries/000.p/3", SEGMENT, "/checkpoint", "/v1/trust/feed"])
      expect([200, 206, 404, 416]).toContain(await asked(service.port, path, `range: ${range}\r\n`));
  });

  test.each([
    ["an etag of all kinds", `if-none-match: ${'W/"x", '.repeat(500)}*\r\n`],
    ["a date that is none", `if-modified-since: ${MANY}\r\n`],
    ["codings without end", `accept-encoding: ${"a;q=9,".repeat(500)}\r\n`],
    ["a coding of 300 digits", `accept-encoding: gzip;q=0.${MANY}\r\n`],
    ["forwarded garbage", `x-forwarded-for: ${"::::%%,".repeat(300)}\r\n`],
    ["a host that is none", "host: %%\r\n"],
    ["an upgrade", "upgrade: websocket\r\nconnection: upgrade\r\n"],
    ["an expectation", "expect: 200-maybe\r\n"],
  ])("%s", async (_, headers) => {
    for (const path of ["/", "/v1/trust/feed", "/tile/0/000.p/3", "/v1/check?url=cap_"])
      expect(await asked(service.port, path, headers)).toBeLessThan(500);
  });
});

describe("a body that breaks off is the sender's end, not our fault", () => {
  const path = `/v1/trust/${capOf(SUM)}/disputes`;
  const count = async (): Promise<number> => {
    const line = /touchstone_http_requests_total\{operation="dispute",status="400"\} (\d+)/;
    return Number(line.exec(await metrics.text())?.[1] ?? 0);
  };

  test.each([
    ["destroyed", 'content-length: 100\r\n\r\n{"a":1'],
    ["destroyed within a chunk", "transfer-encoding: chunked\r\n\r\nff\r\nabc"],
    ["half closed", 'content-length: 100\r\n\r\n{"a":1'],
  ])("%s", async (how, rest) => {
    const before = await count();
    const socket = connect(service.port, "127.0.0.1");
    socket.on("error", () => undefined);
    socket.write(`POST ${path} HTTP/1.1\r\nhost: h\r\n${rest}`);
    await once(socket, "connect");
    // Who is answered came later than it did.
    expect(await asked(service.port, "/livez")).toBe(200);
    await new Promise((resolve) => setTimeout(resolve, 100));
    if (how === "half closed") socket.end();
    else socket.destroy();
    await expect.poll(count).toBe(before + 1);
    expect(await metrics.text()).not.toMatch(/touchstone_http_requests_total\{[^}]*status="500"\} [1-9]/);
    socket.destroy();
  });

  test("chunks that are none are refused", async () => {
    const broken = `POST ${path} HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n`;
    expect(await statusOf(service.port, broken)).toBe(400);
  });
});

test.each([
  ["the replica's source", new SourceDown("https://source.example", "live/0.1.arrow", "it answered 500")],
  ["the store", new StoreDown("get", 5)],
])("%s does not answer: a 503, and no error of ours", async (_, down) => {
  const fails = () => Promise.reject(down);
  const { get } = await servingOver(record, { logger, store: { get: fails, head: fails, getRange: fails } });
  const response = await get("/live/0.1.arrow");
  expect([response.status, response.headers.get("retry-after")]).toEqual([503, "5"]);
  expect(ProblemDocument.parse(await response.json()).type).toBe("/docs/api#unavailable");
});

describe("drawn requests of every operation", () => {
  const digits = fc.integer({ min: 1, max: 400 }).map((n) => "9".repeat(n));
  const garbage = fc.oneof(
    digits,
    fc.string({ maxLength: 40 }).map(encodeURIComponent),
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString("hex").replaceAll(/../g, "%$&")),
    fc.stringMatching(/^[!-~]{0,40}$/),
    fc.stringMatching(/^(?:%[0-9a-fA-FzZ]{0,2}|[a-z./:{}[\]\\|^`"<>]){0,20}$/),
    fc.stringMatching(/^[\x80-\xff]{1,10}$/),
    fc.constantFrom(
      "..",
      ".",
      "%2e%2e",
      "%2f",
      "%5c",
      "%00",
      "%",
      "%25",
      "__proto__",
      "constructor",
      "hasOwnProperty",
      "",
    ),
    fc.constantFrom(capOf(SUM), EMPTY_DAY_ID, "check-before-you-pay", "A", "1", "0", "-1", "1e9", "NaN"),
    fc.constantFrom("http://h.example/", "https://h.example:99999/", "http://[::1]/", "http://\u00e9/", "javascript:1"),
  );
  /** Keys of the public table, existing or not, with numbers as long as they please. */
  const keysBelow = (root: string): fc.Arbitrary<string> => {
    const patterns = Object.values(OBJECTS).filter(({ pattern }) => pattern.source.startsWith(`^${root}`));
    const key = fc.oneof(...patterns.map(({ pattern }) => fc.stringMatching(pattern)));
    return fc.oneof(
      key,
      fc.tuple(key, digits).map(([one, n]) => one.replace(/\d+/, () => n)),
    );
  };
  const path = fc.array(garbage, { maxLength: 5 }).map((parts) => parts.join("/"));
  const NAMES = ["url", "method", "pay_to", "cursor", "page", "subject", "q", "letter", "sort", "__proto__", ""];
  const query = fc
    .array(fc.tuple(fc.oneof(fc.constantFrom(...NAMES), garbage), garbage), { maxLength: 4 })
    .map((pairs) => (pairs.length ? `?${pairs.map(([name, value]) => `${name}=${value}`).join("&")}` : ""));
  const pathOf = ({ path: pattern }: Operation): fc.Arbitrary<string> => {
    const drawn = fc
      .tuple(garbage, path)
      .map(([id, end]) => pattern.replace(/:\w+/, () => id).replace("**", () => end));
    const root = /^\/(\w+)\/\*\*$/.exec(pattern)?.[1];
    return root === undefined
      ? drawn
      : fc.oneof(
          drawn,
          keysBelow(root).map((key) => `/${key}`),
        );
  };
  const headers = fc.constantFrom(
    "",
    "accept: text/html\r\n",
    "accept-encoding: zstd, gzip\r\n",
    `range: bytes=${MANY}-1\r\n`,
    'if-none-match: W/"\r\n',
    "content-length: 2\r\ncontent-type: application/json\r\n",
  );

  test.each(OPERATIONS.map((operation) => [operation.id, operation] as const))("%s", async (_, operation) => {
    const method = fc.constantFrom(operation.method ?? "GET", "GET", "HEAD", "POST");
    await fc.assert(
      fc.asyncProperty(pathOf(operation), query, headers, method, async (asked, search, more, verb) => {
        const target = `${asked}${search}`.replaceAll(/[\r\n ]/g, "+");
        const body = more.startsWith("content-length") ? "{}" : "";
        const text = `${verb} ${target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n${more}\r\n${body}`;
        const status = await statusOf(service.port, text);
        // 503: a cursor of this log that is ahead of what was read.
        if (status !== 503) expect(status).toBeLessThan(500);
        expect(errors).toEqual([]);
      }),
      { numRuns: 60 },
    );
  });

  test("objects of a mirror", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(keysBelow(""), path, garbage), async (text) => {
        const target = `/${text}`.replaceAll(/[\r\n ]/g, "+");
        expect(await asked(mirror.port, target)).toBeLessThan(500);
        expect(errors).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });
});
