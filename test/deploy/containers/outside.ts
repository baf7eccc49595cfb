import { createServer, type Server } from "node:http";
import { connect, createServer as createTcp } from "node:net";
import { createPublicClient, type Hex, http } from "viem";
import { type FundedChain, fundedChain, sellerOn } from "../../helpers/funded-chain.ts";
import { run } from "./podman.ts";

/**
 * The world outside of the containers, on this machine: a node that says that it is Base, a seller, a catalogue and a
 * control address. They have addresses that are public by number (of a block that no public host answers from), so that
 * the roles run with the settings of production and no switch of development.
 */
const HOSTS = ["11.84.2.1", "11.84.2.2", "11.84.2.3", "11.84.2.4", "11.84.2.5"] as const;
const [DIRECTORY, ...SELLERS] = HOSTS;
/** Endpoints of each seller, the most that one host is listed with: some of all of them have their minute in each minute. */
const PATHS = 200;
/** Atomic: a tenth of a cent. */
const PRICE = "1000";
const FUNDS = 1_000_000n;

export interface Outside {
  chain: FundedChain;
  /** As containers reach it. */
  rpcUrl: string;
  catalogue: string;
  control: string;
  sellers: Awaited<ReturnType<typeof sellerOn>>[];
  /** How many the catalogue lists. */
  endpoints: number;
  /**
   * Puts the clocks of node and control address to the beginning of the next block of six hours.
   * @returns how far they are ahead of this machine's clock, ms
   */
  toNextBlock(): Promise<number>;
  /** Did the chain mine this transaction, and did it succeed? */
  settled(transaction: string): Promise<boolean>;
  /** Money from outside, for each wallet. */
  fund(addresses: readonly string[]): Promise<void>;
  close(): Promise<void>;
}

const listening = (server: Server, host: string, port: number): Promise<void> =>
  new Promise((done, fail) => void server.once("error", fail).listen(port, host, done));

export async function openOutside(): Promise<Outside> {
  for (const host of HOSTS) run("ip", ["address", "replace", `${host}/32`, "dev", "lo"]);
  const chain = await fundedChain(8453);
  // Anvil listens on the loopback alone; containers come from elsewhere.
  const door = createTcp((socket) => {
    const node = connect(chain.port, "127.0.0.1");
    for (const [from, to] of [
      [socket, node],
      [node, socket],
    ] as const)
      from.on("error", () => to.destroy()).pipe(to);
  });
  await new Promise<void>((done) => door.listen(0, DIRECTORY, done));
  const sellers = await Promise.all(
    SELLERS.map((host, n) =>
      sellerOn(
        { network: chain.network, asset: chain.asset, amount: PRICE, payTo: `0x${String(61 + n).padStart(40, "0")}` },
        chain,
        { host, port: 80 },
      ),
    ),
  );
  const items = sellers.flatMap(({ origin, terms }) =>
    Array.from({ length: PATHS }, (_, n) => ({
      ...{ resource: `${origin}/sum/${n}`, type: "http", x402Version: 2, accepts: [terms], lastUpdated: 1_790_000_000 },
    })),
  );
  const node = createPublicClient({ transport: http(chain.rpcUrl) });
  let aheadMs = 0;
  const directory = createServer((request, response) => {
    response.setHeader("date", new Date(Date.now() + aheadMs).toUTCString());
    const { searchParams, pathname } = new URL(request.url!, "http://directory");
    if (pathname === "/up") return void response.end("up");
    const offset = Number(searchParams.get("offset") ?? 0);
    const limit = Math.min(100, Number(searchParams.get("limit") ?? 100));
    const pagination = { limit, offset, total: items.length };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ items: items.slice(offset, offset + limit), pagination }));
  });
  await listening(directory, DIRECTORY, 80);
  return {
    ...{ chain, sellers, endpoints: items.length },
    // Podman before 5 knows no `host-gateway`: `host.docker.internal` is read by Docker Compose here, and led to by nobody.
    rpcUrl: `http://${DIRECTORY}:${(door.address() as { port: number }).port}`,
    catalogue: `http://${DIRECTORY}/discovery/resources`,
    control: `http://${DIRECTORY}/up`,
    async toNextBlock() {
      aheadMs = await chain.toNextBlock();
      return aheadMs;
    },
    async settled(transaction) {
      const receipt = await node.getTransactionReceipt({ hash: transaction as Hex }).catch(() => null);
      return receipt?.status === "success";
    },
    async fund(addresses) {
      for (const address of addresses) await chain.fund(address, FUNDS);
    },
    async close() {
      for (const seller of sellers) await seller.close();
      directory.closeAllConnections();
      directory.close();
      door.close();
      await chain.stop();
      for (const host of HOSTS) run("ip", ["address", "del", `${host}/32`, "dev", "lo"]);
    },
  };
}
