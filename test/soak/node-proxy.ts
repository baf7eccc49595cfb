import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A node of the chain that can stay behind, in front of the real one. */
export interface LaggingNode {
  readonly url: string;
  /** From now on no block after the newest one is shown. Transactions are still passed on. */
  stayBehind(): Promise<void>;
  catchUp(): void;
  close(): void;
}

interface Call {
  id: unknown;
  method: string;
  params?: unknown[];
}

/** Methods whose last parameter is a block, which may be left out. Number of their other parameters. */
const AT_BLOCK: Readonly<Record<string, number>> = {
  eth_call: 1,
  eth_getBalance: 1,
  eth_getCode: 1,
  eth_getStorageAt: 2,
  eth_getTransactionCount: 1,
};
const NEWEST = new Set(["latest", "safe", "finalized", undefined]);

/** Starts a JSON-RPC proxy in front of a node. */
export async function startLaggingNode(target: string): Promise<LaggingNode> {
  let newest: bigint | null = null;
  const ask = async (calls: unknown): Promise<unknown> => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(target, { method: "POST", headers, body: JSON.stringify(calls) });
    return response.json();
  };
  /** The call as it is asked of the real node, at the block that this node has. */
  const behind = ({ params = [], ...call }: Call): Call => {
    const block = `0x${newest!.toString(16)}`;
    const at = AT_BLOCK[call.method];
    if (at !== undefined && NEWEST.has(params[at] as string | undefined))
      return { ...call, params: [...params.slice(0, at), block, ...params.slice(at + 1)] };
    if (call.method === "eth_getBlockByNumber" && NEWEST.has(params[0] as string))
      return { ...call, params: [block, params[1]] };
    return { ...call, params };
  };
  const isLater = (number: unknown): boolean => typeof number === "string" && BigInt(number) > newest!;
  const hidden = (call: Call, answer: { result?: unknown }): unknown => {
    if (call.method === "eth_blockNumber") return { ...answer, result: `0x${newest!.toString(16)}` };
    const { result } = answer;
    if (Array.isArray(result))
      return {
        ...answer,
        result: result.filter((one) => !isLater((one as { blockNumber?: string } | null)?.blockNumber)),
      };
    if (
      call.method === "eth_getTransactionReceipt" &&
      isLater((result as { blockNumber?: string } | null)?.blockNumber)
    )
      return { ...answer, result: null };
    if (call.method === "eth_getTransactionByHash" && isLater((result as { blockNumber?: string } | null)?.blockNumber))
      return { ...answer, result: { ...(result as object), blockNumber: null, blockHash: null } };
    return answer;
  };
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const asked = JSON.parse(Buffer.concat(chunks).toString("utf8")) as Call | Call[];
    const calls = Array.isArray(asked) ? asked : [asked];
    const lagging = newest !== null;
    const answers = [
      await ask(lagging ? (Array.isArray(asked) ? calls.map(behind) : behind(calls[0]!)) : asked),
    ].flat();
    const told = lagging ? answers.map((answer, i) => hidden(calls[i]!, answer as object)) : answers;
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify(Array.isArray(asked) ? told : told[0]));
  };
  const server = createServer((request, response) => void pass(request, response).catch(() => response.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stayBehind() {
      const { result } = (await ask({ jsonrpc: "2.0", id: 1, method: "eth_blockNumber", params: [] })) as {
        result: string;
      };
      newest = BigInt(result);
    },
    catchUp() {
      newest = null;
    },
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}
