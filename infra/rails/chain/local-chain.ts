import { type ChildProcess, spawn } from "node:child_process";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";
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
  /** File the chain's state is kept in: read at start when it exists, written every ten seconds and at the end. */
  stateFile?: string;
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

function anvilArguments({ stateFile, chainId }: LocalChainOptions): string[] {
  const id = String(chainId ?? LOCAL_CHAIN_ID);
  // Two epochs are final: with epochs of one block a test of the chain's own word need not wait for 64 of them.
  const mining = ["--chain-id", id, "--block-time", "1", "--mixed-mining", "--slots-in-an-epoch", "1"];
  // At most ten seconds are lost when anvil is killed.
  const state = stateFile ? ["--state", stateFile, "--state-interval", "10"] : [];
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

/** A running anvil. It dies with its parent, however the parent dies. */
interface AnvilProcess {
  readonly rpcUrl: string;
  readonly port: number;
  /** Process id of anvil itself, not of its guard. */
  readonly pid: number;
  /** Settles when anvil has ended, asked or not, with what it said on stderr. Never rejects. */
  readonly ended: Promise<{ code: number | null; stderr: string }>;
  /** Ask anvil to write its state and end; kill it after ten seconds. Resolves when it is gone. */
  stop(): Promise<void>;
}

/**
 * The guard: a shell that runs anvil and reads its own stdin, which is a pipe only we hold. When we close it, or die
 * by any signal, the read ends and anvil is told to write its state and go. So the clean stop and the crash are one
 * path, and no anvil is left behind. It prints anvil's pid, so that we can end anvil if somebody kills the guard.
 */
const GUARD = `
exec 3<&0
"$@" </dev/null >/dev/null 3<&- &
node=$!
echo "$node"
exec >/dev/null
(
  read -r _ <&3
  kill -TERM "$node" 2>/dev/null
  tries=0
  while kill -0 "$node" 2>/dev/null && [ "$tries" -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -KILL "$node" 2>/dev/null
) &
watch=$!
exec 3<&-
wait "$node"
code=$?
kill "$watch" 2>/dev/null
exit "$code"
`;

/** Path of the native binary inside the npm package; no install script is needed. Throws when there is none. */
function anvilBinary(): string {
  const require = createRequire(import.meta.url);
  const cpu = process.arch === "x64" ? "amd64" : process.arch;
  const name = `@foundry-rs/anvil-${process.platform}-${cpu}`;
  try {
    const anvil = createRequire(require.resolve("@foundry-rs/anvil/package.json"));
    return join(dirname(anvil.resolve(`${name}/package.json`)), "bin", "anvil");
  } catch (cause) {
    throw new Error(`no local chain on this machine: package ${name} is not installed`, { cause });
  }
}

/** A port nobody listens on now; `wanted` itself, or an error that names it, when it is given. */
export async function freePort(wanted = 0): Promise<number> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once("error", (cause) => reject(new Error(`port ${wanted} is taken or not allowed`, { cause })));
    server.listen(wanted, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address ? address.port : wanted;
      server.close(() => resolve(port));
    });
  });
}

/** Start anvil with these arguments under its guard. Resolves when the guard has told its pid, before it answers. */
export async function spawnAnvil(port: number, args: readonly string[]): Promise<AnvilProcess> {
  const command = [anvilBinary(), "--quiet", "--host", "127.0.0.1", "--port", String(port), ...args];
  const guard = spawn("/bin/sh", ["-c", GUARD, "anvil-guard", ...command], { stdio: ["pipe", "pipe", "pipe"] });
  // Writing to a guard that is gone is not an event: its end is.
  guard.stdin.on("error", () => {});
  const stderr = tail(guard.stderr);
  const pid = await firstNumber(guard);
  const ended = new Promise<{ code: number | null; stderr: string }>((resolve) => {
    guard.once("close", (code) => resolve({ code, stderr: stderr() }));
    // The guard was killed alone: anvil lives on without it, and now goes too, with what is left of the guard.
    guard.once("exit", (_code, signal) => {
      if (signal) killQuietly(pid);
      guard.stdin.end();
    });
  });
  const stop = async () => {
    guard.stdin.end();
    await ended;
  };
  return { rpcUrl: `http://127.0.0.1:${port}`, port, pid, ended, stop };
}

function firstNumber(guard: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    guard.once("error", (cause) => reject(new Error("the local chain could not be started", { cause })));
    guard.once("exit", (code) => reject(new Error(`the local chain's guard ended at once (exit ${code})`)));
    guard.stdout?.once("data", (bytes: Buffer) => resolve(Number.parseInt(bytes.toString("utf8"), 10)));
  });
}

/** The last 2,000 characters of a stream, kept while it runs so that it never blocks its writer. */
function tail(stream: Readable): () => string {
  let kept = "";
  stream.setEncoding("utf8").on("data", (more: string) => {
    kept = (kept + more).slice(-2_000);
  });
  return () => kept.trim();
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {
    // Gone already: that is what was wanted.
  }
}
