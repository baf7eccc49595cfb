import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import type { Asked, Handler } from "./world.ts";

/** A request as it came over the wire: names in their own case and order. */
export interface Leg {
  method: string;
  url: string;
  headers: [name: string, value: string][];
  body: string;
  from: string;
}

export const pairs = (raw: string[]): [string, string][] =>
  raw.flatMap((name, i) => (i % 2 ? [] : [[name, raw[i + 1]!]]));

async function legOf(request: IncomingMessage): Promise<Leg> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return {
    method: request.method!,
    url: `http://${request.headers.host}${request.url}`,
    headers: pairs(request.rawHeaders),
    body: Buffer.concat(chunks).toString(),
    from: request.socket.remoteAddress!,
  };
}

export interface RealSeller {
  port: number;
  legs: Leg[];
  close(): Promise<void>;
}

/** A seller of the fake world (world.ts) behind a real socket; keeps every request, and packs for whoever takes gzip. */
export async function realSeller(handler: Handler): Promise<RealSeller> {
  const legs: Leg[] = [];
  const server = createServer(async (request, response) => {
    const leg = await legOf(request);
    legs.push(leg);
    const headers = Object.fromEntries(leg.headers.map(([name, value]) => [name.toLowerCase(), value]));
    const json = leg.body === "" ? undefined : JSON.parse(leg.body);
    const inCall = json?.params?._meta?.["x402/payment"];
    const inTool =
      typeof inCall === "object"
        ? Buffer.from(JSON.stringify(inCall)).toString("base64")
        : (inCall as string | undefined);
    const payment = headers["payment-signature"] ?? headers["x-payment"] ?? headers.authorization ?? inTool;
    const asked: Asked = { url: leg.url, method: leg.method, headers, profile: "handshake", payment, json };
    const said = await handler(asked, legs.length - 1);
    if (said.outcome !== "answered") return response.destroy();
    const packs = /\bgzip\b/.test(headers["accept-encoding"] ?? "");
    const body = packs ? gzipSync(said.body) : said.body;
    const coding = packs ? { "content-encoding": "gzip" } : {};
    response.writeHead(said.status, { ...said.headers, ...coding, "content-length": body.length });
    return response.end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    legs,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
