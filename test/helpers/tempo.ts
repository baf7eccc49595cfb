import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Mppx, tempo } from "mppx/server";
import { createClient, encodeFunctionData, erc20Abi, formatUnits, http, publicActions } from "viem";
import { tempo as tempoChain } from "viem/tempo/chains";
import { freePort, spawnAnvil } from "../../fixtures/chain/local-chain.ts";
import { tempoDollar } from "../../infra/rails/tempo.ts";

/** An account that anvil holds the key of, and that has all the tokens of a new Tempo chain. */
const RICH = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

/** A local Tempo node with the id of its test network, and pathUSD on it. */
export async function tempoNode() {
  const chainId = 42431;
  const port = await freePort();
  const args = ["--network", "tempo", "--chain-id", String(chainId), "--block-time", "1", "--mixed-mining"];
  const anvil = await spawnAnvil(port, args);
  const chain = { ...tempoChain, id: chainId };
  const client = createClient({ chain, transport: http(anvil.rpcUrl, { retryCount: 0 }) }).extend(publicActions);
  const network = `eip155:${chainId}`;
  const asset = tempoDollar(network)!.address as `0x${string}`;
  return {
    ...{ rpcUrl: anvil.rpcUrl, network, asset, client, stop: () => anvil.stop() },
    /** Send from the node's own rich account. */
    async fund(address: string, atomic: bigint): Promise<void> {
      const data = encodeFunctionData({ abi: erc20Abi, functionName: "transfer", args: [address as never, atomic] });
      const params = [{ from: RICH, to: asset, data }];
      // The node's own method, unknown to the client's types: it answers when the transaction is in a block.
      const receipt: { status: string } = await client.request({
        method: "eth_sendTransactionSync",
        params,
      } as never);
      if (receipt.status !== "0x1") throw new Error("the rich account could not send");
    },
  };
}

export type TempoNode = Awaited<ReturnType<typeof tempoNode>>;

/** A seller over mpp's own server, method `tempo/charge`, unmodified: it sends the payer's transaction itself. */
export async function tempoSeller(node: TempoNode, offer: { amount: string; payTo: string }) {
  const seen = { paid: 0, asked: 0 };
  const server = Mppx.create({
    ...{ realm: "shop.test", secretKey: "0123456789abcdef".repeat(4) },
    methods: [
      tempo.charge({
        ...{ currency: node.asset, recipient: offer.payTo as `0x${string}`, testnet: true },
        getClient: () => node.client as never,
      }),
    ],
  });
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { authorization } = request.headers;
    const asked = new Request(`http://shop.test${request.url}`, authorization ? { headers: { authorization } } : {});
    const result = await server.charge({ amount: formatUnits(BigInt(offer.amount), 6) })(asked);
    if (result.status === 402) {
      seen.asked++;
      return void response
        .writeHead(402, Object.fromEntries(result.challenge.headers))
        .end(await result.challenge.text());
    }
    seen.paid++;
    const paid = result.withReceipt(new Response('{"sum":42}', { headers: { "content-type": "application/json" } }));
    response.writeHead(200, Object.fromEntries(paid.headers)).end('{"sum":42}');
  }
  const listener = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
  return {
    ...{ seen, url: `${origin}/sum` },
    async close() {
      listener.closeAllConnections();
      await new Promise((resolve) => listener.close(resolve));
    },
  };
}
