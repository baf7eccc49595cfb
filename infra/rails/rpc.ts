import {
  BaseError,
  BlockNotFoundError,
  createPublicClient,
  HttpRequestError,
  http,
  RpcRequestError,
  TimeoutError,
} from "viem";

/** The chain did not answer, or answered nonsense, after every retry. Nothing is known of what was asked: ask again. */
export class ChainDown extends Error {
  override readonly name = "ChainDown";
  readonly retriable = true;
}

const RETRIES = 3;
const RETRY_DELAY_MS = 100;
const TIMEOUT_MS = 10_000;

/** A client that reads a chain. Each question is tried at most four times, ten seconds each. */
export const createReader = (rpcUrl: string) =>
  createPublicClient({
    transport: http(rpcUrl, { retryCount: RETRIES, retryDelay: RETRY_DELAY_MS, timeout: TIMEOUT_MS }),
  });

export type Reader = ReturnType<typeof createReader>;

/** Trouble that says nothing of the question. A block that is not found was replaced while we asked. */
const PASSING = [HttpRequestError, TimeoutError, RpcRequestError, BlockNotFoundError];

/** Run one read; trouble on the way to the chain becomes `ChainDown`, anything else passes as it is. */
export async function reading<T>(what: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    const passing = (cause: unknown) => PASSING.some((kind) => cause instanceof kind);
    if (!(error instanceof BaseError) || !error.walk(passing)) throw error;
    throw new ChainDown(`the chain cannot be asked for ${what}: ${error.shortMessage}`, { cause: error });
  }
}
