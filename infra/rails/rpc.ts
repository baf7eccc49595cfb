import {
  AbiDecodingDataSizeTooSmallError,
  BaseError,
  BlockNotFoundError,
  ContractFunctionRevertedError,
  ContractFunctionZeroDataError,
  createPublicClient,
  HttpRequestError,
  type HttpTransport,
  http,
  ResponseBodyTooLargeError,
  RpcRequestError,
  TimeoutError,
} from "viem";
import { Failure } from "../errors.ts";
import { addAddressSecrets, redactError } from "../secrets.ts";

/** Thrown when a chain gave no usable answer after every retry. The answer is unknown; the caller asks again later. */
export class ChainDown extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("chain", message, { ...options, retriable: true });
  }
}

/** Number of retries of a request, and how long each try waits for an answer, ms. */
interface RetryLimits {
  retries: number;
  timeoutMs: number;
}
const DEFAULT_RETRIES: RetryLimits = { retries: 3, timeoutMs: 10_000 };
/** Limits for checks that an operator waits for: a node that does not answer is reported within ten seconds. */
export const SHORT_RETRIES: RetryLimits = { retries: 1, timeoutMs: 4_500 };
const RETRY_DELAY_MS = 100;

/** Methods whose result is never null by the execution API, so that null from a node counts as no answer. */
const METHODS_WITH_RESULT: readonly string[] = ["eth_call", "eth_chainId", "eth_getCode", "eth_getLogs"];

/**
 * Wraps a transport: removes secrets from its errors, and throws ChainDown for null where a method has a result. A
 * node's address may contain an API key, viem puts the address into every error, and an error's message may be
 * recorded and published.
 */
function withSafeAnswers(transport: HttpTransport): HttpTransport {
  return (options) => {
    const transportInstance = transport(options);
    const request: typeof transportInstance.request = async (...args) => {
      const { method } = args[0] as { method: string };
      let result: unknown;
      try {
        result = await transportInstance.request(...args);
      } catch (error) {
        throw redactError(error);
      }
      if (METHODS_WITH_RESULT.includes(method) && (result === null || result === undefined))
        throw new ChainDown(`a node answers ${method} with null`);
      return result as never;
    };
    return { ...transportInstance, request };
  };
}

/** Returns an HTTP transport with retries, whose errors do not contain the address. */
export const quietHttp = (rpcUrl: string, { retries, timeoutMs } = DEFAULT_RETRIES) => {
  addAddressSecrets(rpcUrl, true);
  return withSafeAnswers(http(rpcUrl, { retryCount: retries, retryDelay: RETRY_DELAY_MS, timeout: timeoutMs }));
};

/**
 * Creates a client that reads a chain. By default each request is tried at most four times, ten seconds each.
 * @param rpcUrl one node, or several in the order in which they are asked until one answers; with none every request
 * throws ChainDown
 */
export function createReader(rpcUrl: string | readonly string[], retryLimits = DEFAULT_RETRIES) {
  const transports = [rpcUrl].flat().map((url) => quietHttp(url, retryLimits));
  return createPublicClient({ transport: transports.length === 1 ? transports[0]! : createFallback(transports) });
}

/** Time for which a node that did not answer is asked only after the others, ms. */
const COOLDOWN_MS = 60_000;

/**
 * Remembers which of several nodes or tills (services that charge buyers) failed a moment ago, so that these are
 * asked last. Each request to one that is down costs seconds.
 */
export class Cooldowns<K extends object> {
  readonly #coolsUntil = new WeakMap<K, number>();

  constructor(
    private readonly cooldownMs = COOLDOWN_MS,
    private readonly now = () => performance.now(),
  ) {}

  markFailed(one: K): void {
    this.#coolsUntil.set(one, this.now() + this.cooldownMs);
  }

  markSucceeded(one: K): void {
    this.#coolsUntil.delete(one);
  }

  /** Returns the given nodes or tills in their order, but those that failed within the last `cooldownMs` at the end. */
  inOrder(all: readonly K[]): K[] {
    const isCooling = (one: K): boolean => (this.#coolsUntil.get(one) ?? 0) > this.now();
    return [...all.filter((one) => !isCooling(one)), ...all.filter(isCooling)];
  }
}

/** Asks one node after another until one answers. An error that is about the request itself counts as an answer. */
function createFallback(transports: readonly HttpTransport[]): HttpTransport {
  return (options) => {
    const nodes = transports.map((transport) => transport(options));
    const cooldowns = new Cooldowns<(typeof nodes)[number]>();
    const request: (typeof nodes)[number]["request"] = async (...args) => {
      let lastError: unknown = new ChainDown("no node is named");
      for (const node of cooldowns.inOrder(nodes)) {
        try {
          return (await node.request(...args)) as never;
        } catch (error) {
          if (!(error instanceof ChainDown) && !isTransportError(error)) throw error;
          cooldowns.markFailed(node);
          lastError = error;
        }
      }
      throw lastError;
    };
    return { ...nodes[0]!, request };
  };
}

export type Reader = ReturnType<typeof createReader>;

/**
 * Classes of viem's errors that are about the transport to the chain and not about the request. BlockNotFoundError is
 * one of them, since a block that is not found was replaced during the read.
 */
const TRANSPORT_ERRORS = [ChainDown, HttpRequestError, TimeoutError, RpcRequestError, BlockNotFoundError];

const findCause = <E>(error: BaseError, kind: new (...args: never[]) => E): E | null =>
  error.walk((cause) => cause instanceof kind) as E | null;

/** JSON-RPC error code with which nodes report a revert, although EIP-1474 defines none. */
const EXECUTION_REVERTED = 3;

/**
 * Reports whether a call reverted. viem also reports a node's internal error as a revert, so there has to be revert
 * data, the code of a revert, or the word "revert" in the node's own answer.
 */
function isRevert(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  const answer = findCause(error, RpcRequestError);
  const { raw } = findCause(error, ContractFunctionRevertedError) ?? {};
  return Boolean(raw) || answer?.code === EXECUTION_REVERTED || /revert/i.test(answer?.details ?? "");
}

/** Reports whether a contract has no such function: the call of a missing one reverts or returns no data. */
export const isMissingFunction = (error: unknown): boolean =>
  isRevert(error) || (error instanceof BaseError && findCause(error, ContractFunctionZeroDataError) !== null);

/** Returns the revert that an error holds, or null. See `isRevert`. */
export const revertIn = (error: unknown): ContractFunctionRevertedError | null =>
  isRevert(error) ? findCause(error as BaseError, ContractFunctionRevertedError) : null;

/** Reports whether an error is about the transport to the chain and not about the request. */
export function isTransportError(error: unknown): error is BaseError {
  return (
    error instanceof BaseError && !revertIn(error) && TRANSPORT_ERRORS.some((kind) => findCause(error, kind as never))
  );
}

/** Errors that viem throws when the answer to a view function holds no data, or less than the function returns. */
const ANSWER_ERRORS = [ContractFunctionZeroDataError, AbiDecodingDataSizeTooSmallError];

/**
 * Reports whether a node gave an answer that cannot be used: no data, or null or a wrong type, for which viem throws a
 * TypeError.
 */
const isUnusableAnswer = (error: unknown): error is Error =>
  error instanceof TypeError ||
  (error instanceof BaseError && ANSWER_ERRORS.some((kind) => findCause(error, kind as never)));

/**
 * Runs one read and turns transport errors and unusable answers into ChainDown; other errors pass unchanged.
 * @param what what is read, for the error message
 */
export async function chainRead<T>(what: string, read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!isTransportError(error) && !isUnusableAnswer(error)) throw error;
    const why = error instanceof BaseError ? error.shortMessage : error.message;
    throw new ChainDown(`the chain cannot be asked for ${what}: ${why}`, { cause: error });
  }
}

/** Thrown when a node refuses a range: too many blocks or logs, or blocks too old. */
export class RangeRefused extends Failure {
  constructor(why: string, cause: unknown) {
    super("chain", why, { cause });
  }
}

/** Codes of rate limits, which do not refuse the range: HTTP's status as a JSON-RPC code, and one provider's own. */
const RATE_LIMIT_CODES = [429, -32007];

/** Reports whether an error means that a node refused a range of logs, and not that the node is busy or broken. */
function isRefusal(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  const answer = findCause(error, RpcRequestError);
  if (answer) return !RATE_LIMIT_CODES.includes(answer.code);
  const status = findCause(error, HttpRequestError)?.status;
  return status === 400 || status === 413 || findCause(error, ResponseBodyTooLargeError) !== null;
}

/** JSON-RPC error codes that are about the node and not about the request: rate limits, and an internal error. */
const NODE_TROUBLE_CODES = [...RATE_LIMIT_CODES, -32005, -32603];

/** Reports whether a node answered that it has no such block or tag, and not that it is busy or broken. */
export function isBlockRefused(error: unknown): boolean {
  if (!(error instanceof BaseError)) return false;
  if (findCause(error, BlockNotFoundError)) return true;
  const answer = findCause(error, RpcRequestError);
  if (!answer || NODE_TROUBLE_CODES.includes(answer.code)) return false;
  // -32000 stands for any error of the server, also a limit, so the words of the answer decide.
  return answer.code !== -32000 || /block|tag/i.test(answer.details);
}

/** Reads logs of a range of blocks. @throws RangeRefused when a smaller range may be answered; ChainDown otherwise */
export async function readLogRange<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await chainRead("logs", read);
  } catch (error) {
    if (!isRefusal(error instanceof ChainDown ? error.cause : error)) throw error;
    throw new RangeRefused((error as Error).message, error);
  }
}
