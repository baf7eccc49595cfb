import {
  BaseError,
  BlockNotFoundError,
  ContractFunctionRevertedError,
  createPublicClient,
  HttpRequestError,
  type HttpTransport,
  http,
  RpcRequestError,
  TimeoutError,
} from "viem";
import { keepAddress, redactError } from "../secrets.ts";

/** The chain did not answer, or answered nonsense, after every retry. Nothing is known of what was asked: ask again. */
export class ChainDown extends Error {
  override readonly name = "ChainDown";
  readonly retriable = true;
}

const RETRIES = 3;
const RETRY_DELAY_MS = 100;
const TIMEOUT_MS = 10_000;

/**
 * A transport whose errors say nothing of the address: it may carry the key of an account, viem writes it into every error,
 * nodes echo it, and a message may be written into the record.
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

/** A client that reads a chain. Each question is tried at most four times, ten seconds each. */
export function createReader(rpcUrl: string) {
  keepAddress(rpcUrl, true);
  const transport = http(rpcUrl, { retryCount: RETRIES, retryDelay: RETRY_DELAY_MS, timeout: TIMEOUT_MS });
  return createPublicClient({ transport: quiet(transport) });
}

export type Reader = ReturnType<typeof createReader>;

/** Trouble that says nothing of the question. A block that is not found was replaced while we asked. */
const PASSING = [HttpRequestError, TimeoutError, RpcRequestError, BlockNotFoundError];

/** Did the way to the chain fail, and not what was asked? A call that reverts was answered. */
export function isPassing(error: unknown): error is BaseError {
  if (!(error instanceof BaseError)) return false;
  const is = (kinds: readonly (new (...args: never[]) => Error)[]) => (cause: unknown) =>
    kinds.some((kind) => cause instanceof kind);
  return !error.walk(is([ContractFunctionRevertedError])) && error.walk(is(PASSING)) !== null;
}

/** Run one read; trouble on the way to the chain becomes `ChainDown`, anything else passes as it is. */
export async function reading<T>(what: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isPassing(error)) throw error;
    throw new ChainDown(`the chain cannot be asked for ${what}: ${error.shortMessage}`, { cause: error });
  }
}
