import {
  BaseError,
  BlockNotFoundError,
  ContractFunctionRevertedError,
  createPublicClient,
  HttpRequestError,
  type HttpTransport,
  http,
  ResponseBodyTooLargeError,
  RpcRequestError,
  TimeoutError,
} from "viem";
import { Failure } from "../errors.ts";
import { keepAddress, redactError } from "../secrets.ts";

/** The chain did not answer, or answered nonsense, after every retry. Nothing is known of what was asked: ask again. */
export class ChainDown extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("chain", message, { ...options, retriable: true });
  }
}

/** How often a question is asked again, and how long each time waits for an answer, ms. */
interface Patience {
  retries: number;
  timeoutMs: number;
}
const PATIENCE: Patience = { retries: 3, timeoutMs: 10_000 };
/** For who only looks: a node that says nothing is told of within ten seconds. */
export const SHORT_PATIENCE: Patience = { retries: 1, timeoutMs: 4_500 };
const RETRY_DELAY_MS = 100;

/**
 * A transport whose errors say nothing of the address: it may carry the key of an account, viem writes it into every
 * error, nodes echo it, and a message may be written into the record.
 */
function quiet(transport: HttpTransport): HttpTransport {
  return (options) => {
    const made = transport(options);
    const request: typeof made.request = async (...asked) => {
      try {
        return (await made.request(...asked)) as never;
      } catch (error) {
        throw redactError(error);
      }
    };
    return { ...made, request };
  };
}

/** Over HTTP, with retries; its errors say nothing of the address. */
export const quietHttp = (rpcUrl: string, { retries, timeoutMs } = PATIENCE) => {
  keepAddress(rpcUrl, true);
  return quiet(http(rpcUrl, { retryCount: retries, retryDelay: RETRY_DELAY_MS, timeout: timeoutMs }));
};

/**
 * A client that reads a chain. Each question is tried at most four times, ten seconds each, or as `patience` has it.
 * @param rpcUrl one node, or several in their order: the next one is asked when one does not answer; none is `ChainDown`
 */
export function createReader(rpcUrl: string | readonly string[], patience = PATIENCE) {
  const transports = [rpcUrl].flat().map((url) => quietHttp(url, patience));
  return createPublicClient({ transport: transports.length === 1 ? transports[0]! : inTurn(transports) });
}

/** How long a node that did not answer is asked after the others. */
const REST_MS = 60_000;

/** Which of several nodes or tills are passed over for a while: each question to one that is down costs seconds. */
export class Cooldowns<K extends object> {
  readonly #until = new WeakMap<K, number>();

  constructor(
    private readonly ms = REST_MS,
    private readonly now = () => performance.now(),
  ) {}

  failed(one: K): void {
    this.#until.set(one, this.now() + this.ms);
  }

  succeeded(one: K): void {
    this.#until.delete(one);
  }

  /** In their order, those that rest last: a rest is a guess, and somebody has to be asked. */
  ordered(all: readonly K[]): K[] {
    const rests = (one: K): boolean => (this.#until.get(one) ?? 0) > this.now();
    return [...all.filter((one) => !rests(one)), ...all.filter(rests)];
  }
}

/** Asks one node after the other, until one answers: also with a refusal, which says something of the question. */
function inTurn(transports: readonly HttpTransport[]): HttpTransport {
  return (options) => {
    const made = transports.map((transport) => transport(options));
    const resting = new Cooldowns<(typeof made)[number]>();
    const request: (typeof made)[number]["request"] = async (...asked) => {
      let failed: unknown = new ChainDown("no node is named");
      for (const node of resting.ordered(made)) {
        try {
          return (await node.request(...asked)) as never;
        } catch (error) {
          if (!isTransportError(error)) throw error;
          resting.failed(node);
          failed = error;
        }
      }
      throw failed;
    };
    return { ...made[0]!, request };
  };
}

export type Reader = ReturnType<typeof createReader>;

/** Trouble that says nothing of the question. A block that is not found was replaced while we asked. */
const PASSING = [ChainDown, HttpRequestError, TimeoutError, RpcRequestError, BlockNotFoundError];

const walked = <E>(error: BaseError, kind: new (...args: never[]) => E): E | null =>
  error.walk((cause) => cause instanceof kind) as E | null;

/** EIP-1474 has no code for it; this one is what nodes agreed on. */
const EXECUTION_REVERTED = 3;

/**
 * What a call reverted with, or null when it was not answered by a revert. viem says the same of a node's internal
 * error, which says nothing of the call: so there must be data, the code of a revert, or the word.
 */
export function revertIn(error: unknown): ContractFunctionRevertedError | null {
  if (!(error instanceof BaseError)) return null;
  const reverted = walked(error, ContractFunctionRevertedError);
  const answer = walked(error, RpcRequestError);
  const said = reverted?.raw || answer?.code === EXECUTION_REVERTED || /revert/i.test(answer?.details ?? "");
  return said ? reverted : null;
}

/** Did the way to the chain fail, and not what was asked? */
export function isTransportError(error: unknown): error is BaseError {
  return error instanceof BaseError && !revertIn(error) && PASSING.some((kind) => walked(error, kind as never));
}

/** Run one read; trouble on the way to the chain becomes `ChainDown`, anything else passes as it is. */
export async function chainRead<T>(what: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isTransportError(error)) throw error;
    throw new ChainDown(`the chain cannot be asked for ${what}: ${error.shortMessage}`, { cause: error });
  }
}

/** A node answered that it does not give so much at once: blocks, logs, or blocks so old. */
export class RangeRefused extends Error {
  override readonly name = "RangeRefused";
}

/** Codes that are said of how often was asked, not of what: JSON-RPC over HTTP's own status, and one provider's. */
const TOO_OFTEN = [429, -32007];

function isRefusal(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  const answer = walked(error, RpcRequestError);
  if (answer) return !TOO_OFTEN.includes(answer.code);
  const status = walked(error, HttpRequestError)?.status;
  return status === 400 || status === 413 || walked(error, ResponseBodyTooLargeError) !== null;
}

/** Read logs over a range of blocks. @throws RangeRefused where a smaller range may be answered; ChainDown otherwise */
export async function readLogRange<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await chainRead("logs", read);
  } catch (error) {
    if (!isRefusal(error instanceof ChainDown ? error.cause : error)) throw error;
    throw new RangeRefused((error as Error).message, { cause: error });
  }
}
