import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Mppx, tempo } from "mppx/server";
import { formatUnits } from "viem";
import { startTempoChain, type TempoChain } from "../../fixtures/chain/tempo-chain.ts";

/** A local Tempo node with the id of its test network, and pathUSD on it. */
export const tempoNode = (): Promise<TempoChain> => startTempoChain();

export type TempoNode = TempoChain;

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
