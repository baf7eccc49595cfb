import { BaseError, HttpRequestError, RpcRequestError, TimeoutError } from "viem";
import { errorText } from "./sender.ts";

/** Why a node gave no usable answer, and what an operator can do about it. */
export interface NodeFault {
  /** What happened, in one sentence. */
  says: string;
  /** What to do about it. */
  todo: string;
}

/** Error codes of Node's resolver (getaddrinfo) and sockets, and the prefixes of TLS's. */
const DNS = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA", "EAI_NONAME"]);
const NO_ROUTE = new Set(["EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL", "EACCES", "EPERM"]);
const BROKEN_OFF = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);
const LATE = new Set(["ETIMEDOUT", "UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT"]);
const TLS = /^(?:ERR_SSL|ERR_TLS|CERT_|EPROTO|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|HOSTNAME_MISMATCH|INVALID_CA)/;

/** Most causes of an error that are followed. */
const DEPTH = 10;

/** Returns an error and the chain of its causes; of an AggregateError (a host with several addresses) the first error. */
function causesOf(error: unknown): { name?: string; code?: unknown; message?: string }[] {
  const found: { name?: string; code?: unknown; message?: string }[] = [];
  let one = error;
  while (found.length < DEPTH && typeof one === "object" && one !== null) {
    found.push(one);
    const { cause, errors } = one as { cause?: unknown; errors?: unknown[] };
    one = cause ?? errors?.[0];
  }
  return found;
}

function statusFault(status: number): NodeFault {
  const says = `it answers with HTTP status ${status}`;
  if (status === 401 || status === 403 || status === 402)
    return { says: `${says}: it does not let us in`, todo: "look at the key in its address, and at the account" };
  if (status === 429) return { says: `${says}: too many questions`, todo: "raise its limit, or name another node" };
  if (status >= 500) return { says: `${says}: a fault of the node`, todo: "ask again later, or name another node" };
  return { says: `${says}: nobody takes questions there`, todo: "look at the path of its address" };
}

/** Returns the fault for an error code of a connection, or null. @param code of the system, of undici or of TLS */
function connectionFault(code: string): NodeFault | null {
  if (DNS.has(code))
    return { says: `DNS knows no address of its host (${code})`, todo: "look at the host's spelling, and at the DNS" };
  if (code === "ECONNREFUSED")
    return { says: "the connection is refused: nobody listens at that port", todo: "start it, or look at the port" };
  if (NO_ROUTE.has(code))
    return { says: `no way leads to its host (${code})`, todo: "look at the firewall and the routes of this machine" };
  if (LATE.has(code)) return lateFault();
  if (TLS.test(code))
    return {
      says: `TLS does not come about (${code})`,
      todo: "look at https or http in its address, at its certificate, and at the clock of this machine",
    };
  if (BROKEN_OFF.has(code))
    return { says: `it breaks the connection off (${code})`, todo: "look at https or http in its address" };
  return null;
}

const lateFault = (): NodeFault => ({
  says: "timeout: it does not answer in time",
  todo: "look whether a firewall drops what is sent to it, or name another node",
});

/**
 * Explains why a request to a node failed: DNS, refused, no route, timeout, TLS, HTTP status, not JSON-RPC, or the node's
 * own error. @param error what viem threw
 */
export function nodeFault(error: unknown): NodeFault {
  const causes = causesOf(error);
  const http = causes.find((one) => one instanceof HttpRequestError);
  if (http?.status !== undefined && (http.status < 200 || http.status > 299)) return statusFault(http.status);
  if (causes.some((one) => one instanceof TimeoutError)) return lateFault();
  for (const { code } of causes) {
    const fault = typeof code === "string" ? connectionFault(code) : null;
    if (fault) return fault;
  }
  // A JSON-RPC error has a code; what is no JSON fails to be parsed, and what is other JSON has no result.
  const told = causes.some((one) => one instanceof RpcRequestError && typeof one.code === "number");
  const isOther = causes.some(({ name }) => name === "SyntaxError") || !(error instanceof BaseError);
  if (!told && isOther)
    return { says: "it answers, and not as JSON-RPC", todo: "look at its address: a page or another service is there" };
  const words = errorText(error);
  const last = errorText(causes.at(-1) instanceof Error ? causes.at(-1) : words);
  const says = last === words ? words : `${words} (${last})`;
  return { says, todo: "look whether this node answers, or name another one" };
}
