import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { createLocalWallets } from "../../infra/rails/wallets.ts";
import { Service, type ServiceOptions } from "../../serving/client/index.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { NOW, type PublicRecord } from "./public-record.ts";
import { servingOver, type TestServing } from "./serving.ts";

export const now = (): number => Date.parse(NOW);

/** The real service on a socket, over a record, and how often each of its paths was asked. */
export interface LiveService extends TestServing {
  url: string;
  asked: string[];
  /** The library, pointed at it, with the record's clock. */
  client(more?: Partial<ServiceOptions>): Service;
  close(): Promise<void>;
}

export async function liveService(record: PublicRecord): Promise<LiveService> {
  const serving = await servingOver(record);
  const live: Serving = await serve({ app: serving.app, port: 0, host: "127.0.0.1", graceMs: 200 });
  const asked: string[] = [];
  const counted: typeof fetch = (input, init) => {
    asked.push(new URL(String(input)).pathname);
    return fetch(input, init);
  };
  const client = (more: Partial<ServiceOptions> = {}) => new Service({ base: live.url, fetch: counted, now, ...more });
  return { ...serving, url: live.url, asked, client, close: () => live.close() };
}

/** A server on this machine that answers as it is told. */
export async function peer(answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** A key with money on the local chain. */
export async function fundedKey(
  chain: { rpcUrl: string; asset: string },
  atomic = 10_000_000n,
): Promise<`0x${string}`> {
  const wallets = createLocalWallets({ ...chain, seed: randomBytes(32) });
  return (await wallets.blind("cap_buyer", "2026-11-21", atomic)).privateKey as `0x${string}`;
}
