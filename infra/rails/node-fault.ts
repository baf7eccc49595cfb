import { BaseError, HttpRequestError, RpcRequestError, TimeoutError } from "viem";
import { errorText } from "./sender.ts";

/** Explains to an operator why a blockchain node gave no usable answer. */
export interface NodeFault {
  /** What happened, in one sentence. */
  says: string;
  /** What the operator can do about it. */
  todo: string;
}

/** Error codes of getaddrinfo when it finds no address of a host. */
const DNS_ERRORS = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA", "EAI_NONAME"]);
const ROUTE_ERRORS = new Set(["EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES", "EPERM"]);
const CONNECTION_RESETS = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);
const TIMEOUT_ERRORS = new Set([
  "ETIMEDOUT",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
]);
/** Matches the beginnings of the error codes of Node's TLS. */
const TLS_ERRORS = /^(?:ERR_SSL|ERR_TLS|CERT_|EPROTO|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_CA)/;

/** Largest number of causes of an error that are followed. */
const MAX_CAUSES = 10;

/**
 * Returns an error and the chain of its causes. From an AggregateError (of a host with several addresses) the chain
 * goes on to its first error.
 */
function causesOf(error: unknown): { name?: string; code?: unknown; message?: string }[] {
  const causes: { name?: string; code?: unknown; message?: string }[] = [];
  let current = error;
  while (causes.length < MAX_CAUSES && typeof current === "object" && current !== null) {
    causes.push(current);
    const { cause, errors } = current as { cause?: unknown; errors?: unknown[] };
    current = cause ?? errors?.[0];
  }
  return causes;
}

function statusFault(status: number): NodeFault {
  const says = `it answers with HTTP status ${status}`;
  if (status === 401 || status === 403 || status === 402)
    return { says: `${says}: access is denied`, todo: "check the key in its address, and the account" };
  if (status === 429) return { says: `${says}: too many requests`, todo: "raise its limit, or name another node" };
  if (status >= 500) return { says: `${says}: a fault of the node`, todo: "try again later, or name another node" };
  return { says: `${says}: no JSON-RPC at this path`, todo: "check the path of its address" };
}

/** Returns the fault for an error code of a connection, or null. @param code of the system, of undici or of TLS */
function connectionFault(code: string): NodeFault | null {
  if (DNS_ERRORS.has(code))
    return { says: `DNS has no address of its host (${code})`, todo: "check the host's spelling, and the DNS" };
  if (code === "ECONNREFUSED")
    return { says: "the connection is refused: nothing listens at that port", todo: "start it, or check the port" };
  if (ROUTE_ERRORS.has(code))
    return {
      says: `there is no route to its host (${code})`,
      todo: "check the firewall and the routes of this machine",
    };
  if (TIMEOUT_ERRORS.has(code)) return createTimeoutFault();
  if (TLS_ERRORS.test(code))
    return {
      says: `the TLS handshake failed (${code})`,
      todo: "check https or http in its address, its certificate, and the clock of this machine",
    };
  if (CONNECTION_RESETS.has(code))
    return { says: `it closes the connection (${code})`, todo: "check https or http in its address" };
  return null;
}

const createTimeoutFault = (): NodeFault => ({
  says: "timeout: it does not answer in time",
  todo: "check whether a firewall drops packets to it, or name another node",
});

/**
 * Explains why a request to a node failed: DNS, refused, no route, timeout, TLS, HTTP status, not JSON-RPC, or the
 * node's own error.
 * @param error what viem threw
 */
export function nodeFault(error: unknown): NodeFault {
  const causes = causesOf(error);
  const http = causes.find((one) => one instanceof HttpRequestError);
  if (http?.status !== undefined && (http.status < 200 || http.status > 299)) return statusFault(http.status);
  if (causes.some((one) => one instanceof TimeoutError)) return createTimeoutFault();
  for (const { code } of causes) {
    const fault = typeof code === "string" ? connectionFault(code) : null;
    if (fault) return fault;
  }
  // A JSON-RPC error has a code. An answer that is not JSON fails to parse, and other JSON has no result.
  const hasCode = causes.some((one) => one instanceof RpcRequestError && typeof one.code === "number");
  const isNotRpc = causes.some(({ name }) => name === "SyntaxError") || !(error instanceof BaseError);
  if (!hasCode && isNotRpc)
    return { says: "its answer is not JSON-RPC", todo: "check its address: a page or another service is there" };
  const message = errorText(error);
  const rootMessage = errorText(causes.at(-1) instanceof Error ? causes.at(-1) : message);
  const says = rootMessage === message ? message : `${message} (${rootMessage})`;
  return { says, todo: "check whether this node works, or name another one" };
}
