import {
  type Address,
  concat,
  createTestClient,
  encodeAbiParameters,
  type Hex,
  http,
  publicActions,
  walletActions,
} from "viem";
import { COLLECTOR, ESCROW } from "../escrow-terms.ts";
import { giveLocalGas } from "../wallets.ts";
import { type AnvilProcess, freePort, spawnAnvil } from "./anvil.ts";
import { type ContractName, readArtefact } from "./artefact.ts";

/**
 * USDC's address on Base Sepolia: with it here, default assets and `$` prices of the protocol packages work offline.
 */
export const LOCAL_USDC = "0x036cbd53842c5426634e7929541ec2318f3dcf7e";
/** Multicall3's address on every chain: without code there, all payment failures look like one. */
const MULTICALL3 = "0xca11bde05977b3631167028862be2a173976ca11";
/** Of the same contracts as the escrow: brings refunds from the operator. */
export const REFUND_COLLECTOR = "0x934907bffd0901b6A21e398B9C53A4A38F02fa5d";
export const LOCAL_CHAIN_ID = 84532;
export const LOCAL_NETWORK = `eip155:${LOCAL_CHAIN_ID}`;

const READY_WITHIN_MS = 60_000;

export interface LocalChainOptions {
  /** File the chain's state is kept in: read at start when it exists, written every interval and at the end. */
  stateFile?: string;
  /** Seconds between two writes of the state: at most this much is lost when anvil is killed. Default 10. */
  stateIntervalSeconds?: number;
  /** Default: that of Base Sepolia. */
  chainId?: number;
  /** Token in the place of the one that mints, as a main network has it. */
  token?: { address: string; contract: ContractName };
  /** Fixed port; without one, any free port. A taken one is an error that names it. */
  port?: number;
}

/** A private chain with the id and the token of a real one, on this machine only. Its money is worth nothing. */
export interface LocalChain {
  readonly rpcUrl: string;
  readonly port: number;
  readonly chainId: number;
  readonly network: string;
  /** The USDC stand-in, lower case. */
  readonly asset: string;
  readonly pid: number;
  /** Settles when the chain's process has ended, asked or not. */
  readonly ended: AnvilProcess["ended"];
  /** Give an address 1,000 ETH for gas. */
  giveGas(address: string): Promise<void>;
  /** Put a contract's code at an address: run `creation` and place what it returns. Storage stays empty. */
  place(address: string, creation: string): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Start the local chain and place the token and the escrow. Blocks come at once with a transaction and every second
 * anyway; chain time keeps to this machine's clock. Throws when the port is taken or anvil does not answer in 15 s.
 */
export async function startLocalChain(options: LocalChainOptions = {}): Promise<LocalChain> {
  const port = await freePort(options.port);
  const anvil = await spawnAnvil(port, anvilArguments(options));
  try {
    const client = localClient(anvil.rpcUrl);
    await answering(anvil, () => client.getChainId());
    const place = (address: string, creation: string) => placeCode(client, address as Address, creation as Hex);
    const giveGas = (address: string) => giveLocalGas(anvil.rpcUrl, address);
    const ofEscrow = encodeAbiParameters([{ type: "address" }], [ESCROW]);
    const { chainId = LOCAL_CHAIN_ID, token = { address: LOCAL_USDC, contract: "LocalUsdc" as const } } = options;
    const artefacts: [string, ContractName, Hex?][] = [
      [token.address, token.contract],
      [MULTICALL3, "Multicall"],
      [ESCROW, "AuthCaptureEscrow"],
      [COLLECTOR, "Eip3009Collector", ofEscrow],
      [REFUND_COLLECTOR, "OperatorRefundCollector", ofEscrow],
    ];
    await Promise.all(
      artefacts.map(([address, name, args = "0x"]) => place(address, concat([readArtefact(name).bytecode, args]))),
    );
    const { rpcUrl, pid, ended, stop } = anvil;
    const ids = { chainId, network: `eip155:${chainId}`, asset: token.address.toLowerCase() };
    return { rpcUrl, port, pid, ended, stop, ...ids, giveGas, place };
  } catch (error) {
    await anvil.stop();
    throw error;
  }
}

function anvilArguments({ stateFile, stateIntervalSeconds = 10, chainId }: LocalChainOptions): string[] {
  const id = String(chainId ?? LOCAL_CHAIN_ID);
  // Two epochs are final: with epochs of one block a test of the chain's own word need not wait for 64 of them.
  const mining = ["--chain-id", id, "--block-time", "1", "--mixed-mining", "--slots-in-an-epoch", "1"];
  const state = stateFile ? ["--state", stateFile, "--state-interval", String(stateIntervalSeconds)] : [];
  return [...mining, ...state];
}

type LocalClient = ReturnType<typeof localClient>;
const localClient = (rpcUrl: string) =>
  createTestClient({ mode: "anvil", transport: http(rpcUrl, { retryCount: 0 }) })
    .extend(publicActions)
    .extend(walletActions);

/** Poll until anvil answers; if its process ends first, say what it said. */
async function answering(anvil: AnvilProcess, ask: () => Promise<number>): Promise<void> {
  const deadline = performance.now() + READY_WITHIN_MS;
  const ended = anvil.ended.then(({ code, stderr }) => {
    throw new Error(`the local chain ended while starting (exit ${code}): ${stderr}`);
  });
  ended.catch(() => {});
  for (;;) {
    try {
      await Promise.race([ask(), ended]);
      return;
    } catch (error) {
      if (performance.now() > deadline) throw new Error("the local chain does not answer", { cause: error });
      await Promise.race([new Promise((resolve) => setTimeout(resolve, 10)), ended]);
    }
  }
}

/** A call without a receiver runs creation code and returns the code it would leave, immutables filled in. */
async function placeCode(client: LocalClient, address: Address, creation: Hex): Promise<void> {
  const { data } = await client.call({ data: creation });
  if (!data) throw new Error(`creation code for ${address} returned nothing`);
  await client.setCode({ address, bytecode: data });
}
