import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync, constants, deflateSync, gzipSync } from "node:zlib";

/**
 * The sellers that a stranger may name: a process of its own, so that what it costs them is not ours. The first label of
 * the host says which attack it is; `abuse-attackers` prints `{"port": n}` once it listens, on loopback only.
 *
 * Usage: attackers.ts <asset> <network>
 */
const [asset = "", network = ""] = process.argv.slice(2);
const PAYEE = "0x00000000000000000000000000000000000bad00";

/** Terms that our rail would pay. */
const offer = (host: string, more: Record<string, unknown> = {}) => ({
  scheme: "exact",
  network,
  amount: "100000",
  asset,
  payTo: PAYEE,
  maxTimeoutSeconds: 120,
  resource: `http://${host}/`,
  extra: { name: "USDC", version: "2" },
  ...more,
});
const terms = (host: string, more: Record<string, unknown> = {}) =>
  JSON.stringify({ x402Version: 1, error: "pay", accepts: [offer(host, { maxAmountRequired: "100000", ...more })] });

const nested = (levels: number, inner: string): string => "[".repeat(levels) + inner + "]".repeat(levels);

/** An OpenAPI document in which every operation refers to the same large schema. */
function openApi(host: string): string {
  const properties = Object.fromEntries(Array.from({ length: 4_000 }, (_, i) => [`field_${i}`, { type: "string" }]));
  const schema = { $ref: "#/components/schemas/big" };
  const operation = {
    requestBody: { content: { "application/json": { schema } } },
    responses: { 200: { content: { "application/json": { schema } } }, 402: { description: "pay" } },
    "x-payment-info": { price: "0.10", protocols: ["x402"] },
  };
  const paths = Object.fromEntries(Array.from({ length: 3_000 }, (_, i) => [`/op/${i}`, { post: operation }]));
  const servers = [{ url: `http://${host}` }];
  return JSON.stringify({
    openapi: "3.1.0",
    servers,
    paths,
    components: { schemas: { big: { type: "object", properties } } },
  });
}

const templates = (host: string): string =>
  JSON.stringify({
    x402Version: 2,
    items: Array.from({ length: 200 }, (_, i) => ({
      resource: `http://${host}/${"*/{a}-".repeat(60)}${i}`,
      accepts: [offer(host)],
    })),
  });

/** A few hundred kilobytes that become 256 MiB. */
const bombOf = (pack: (zeros: Buffer) => Buffer) => {
  let packed: Buffer | undefined;
  return () => {
    packed ??= pack(Buffer.alloc(256 * 1024 * 1024));
    return packed;
  };
};
const { BROTLI_PARAM_QUALITY: QUALITY, BROTLI_PARAM_LGWIN: WINDOW } = constants;
const bombs = {
  br: bombOf((zeros) => brotliCompressSync(zeros, { params: { [QUALITY]: 4, [WINDOW]: 24 } })),
  gzip: bombOf((zeros) => gzipSync(zeros, { level: 9 })),
  deflate: bombOf((zeros) => deflateSync(zeros, { level: 9 })),
};

type Attack = (req: IncomingMessage, res: ServerResponse, host: string) => void | Promise<void>;

const body = (res: ServerResponse, status: number, headers: Record<string, string>, text: string | Buffer): void => {
  res.writeHead(status, { "content-type": "application/json", ...headers }).end(text);
};
const document =
  (text: (host: string) => string): Attack =>
  ({ url }, res, host) =>
    url!.startsWith("/.well-known/x402") || url!.startsWith("/openapi")
      ? body(res, 200, {}, text(host))
      : body(res, 402, {}, terms(host));
const bomb =
  (coding: keyof typeof bombs): Attack =>
  (_, res) =>
    body(res, 402, { "content-encoding": coding }, bombs[coding]());

/** Bytes that never end, so many at a time and so many ms apart. */
const dripping =
  (piece: string, ms: number): Attack =>
  async (_, res) => {
    res.writeHead(402, { "content-type": "application/json" });
    while (!res.destroyed && res.writable) {
      res.write(piece);
      await sleep(ms);
    }
  };

export const ATTACKS: Readonly<Record<string, Attack>> = {
  "yaml-questions": document(() => `a:\n${"? ".repeat(500)}`),
  "yaml-keys": document(() => Array.from({ length: 60_000 }, (_, i) => `k${i}: 1`).join("\n")),
  "yaml-flow": document(() => `a: [${",".repeat(5_000)}`),
  "openapi-references": document(openApi),
  "hostile-templates": document(templates),
  "deep-document": document(() => nested(100_000, "1")),
  "brotli-bomb": bomb("br"),
  "gzip-bomb": bomb("gzip"),
  "deflate-bomb": bomb("deflate"),
  "quadratic-challenge": (_, res) =>
    body(res, 402, { "www-authenticate": `Payment ${"a".repeat(5_000)} ${'a="'.repeat(1_500)}` }, "{}"),
  "quadratic-quotes": (_, res) => body(res, 402, { "www-authenticate": `Payment id=${'"\\'.repeat(4_000)}` }, "{}"),
  "nested-type": (_, res, host) =>
    body(
      res,
      402,
      {},
      `{"x402Version":1,"accepts":[${JSON.stringify(offer(host, { maxAmountRequired: "100000" })).slice(0, -1)},"outputSchema":{"output":{"type":${nested(4_000, '"string"')},"properties":{}}}}]}`,
    ),
  "deep-terms": (_, res) => body(res, 402, {}, nested(200_000, "")),
  "many-offers": (_, res, host) =>
    body(res, 402, {}, JSON.stringify({ x402Version: 2, accepts: Array.from({ length: 2_500 }, () => offer(host)) })),
  "endless-pattern": (_, res, host) =>
    body(
      res,
      402,
      {},
      terms(host, {
        outputSchema: { output: { type: "object", patternProperties: { "^(a+)+$": { type: "string" } } } },
      }),
    ),
  tarpit: async (_, res) => {
    await sleep(600_000, undefined, { signal: AbortSignal.timeout(120_000) }).catch(() => {});
    res.destroy();
  },
  drip: dripping(" ", 4_000),
  flood: dripping("x".repeat(65_536), 5),
  crumbs: dripping("x", 1),
  "long-headers": (_, res) => body(res, 402, { "x-long": "x".repeat(60_000) }, "{}"),
  loop: (req, res) => body(res, 302, { location: req.url! }, ""),
  reset: (_, res) => {
    res.writeHead(402, { "content-length": "1000" });
    res.write("{");
    setTimeout(() => res.socket?.resetAndDestroy(), 20);
  },
  "taking-thief": (req, res, host) =>
    req.headers["x-payment"] || req.headers["payment-signature"] ? undefined : body(res, 402, {}, terms(host)),
};

if (process.argv[1] === import.meta.filename) {
  for (const packed of Object.values(bombs)) packed();
  const server = createServer((req, res) => {
    req.resume();
    req.on("error", () => {});
    res.on("error", () => {});
    const host = req.headers.host ?? "";
    const attack = ATTACKS[host.split(".", 1)[0]!];
    if (!attack) body(res, 404, {}, "{}");
    else void Promise.resolve(attack(req, res, host)).catch(() => res.destroy());
  });
  // Answers that are never finished must not pile up here either.
  server.requestTimeout = 180_000;
  server.maxConnections = 2_000;
  server.listen(0, "127.0.0.1", () => {
    const at = server.address();
    process.stdout.write(`${JSON.stringify({ port: typeof at === "object" && at ? at.port : 0 })}\n`);
  });
  process.once("SIGTERM", () => process.exit(0));
}
