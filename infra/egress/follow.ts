import { type ConnectOptions, connectChecked } from "./connect.ts";
import type { EgressRequest, EgressResult } from "./egress.ts";
import { type Ending, Exchange } from "./exchange.ts";
import { afterRedirect } from "./headers.ts";
import { type Course, ended, late, sinceStart, unconnected } from "./result.ts";
import { type Target, type UrlRules, validateUrl } from "./url.ts";

/** What every hop needs and no hop changes. */
export type Means = Pick<ConnectOptions, "resolve" | "ca" | "sourceTo"> & { rules: UrlRules };

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Where an answer sends this request on, or null. Only reading is repeated, so other methods stay where they are. */
function redirectOf({ end, answer }: Ending, method: string, from: URL): string | null {
  if (end !== "answered" || !REDIRECTS.has(answer!.status) || (method !== "GET" && method !== "HEAD")) return null;
  const location = answer!.headers.location;
  if (location === undefined) return null;
  return URL.canParse(location, from.href) ? new URL(location, from).href : location;
}

/** Host as sent: without the trailing dot that the url may have. */
function hostOf({ url, host, literal }: Target): string {
  const name = literal ? url.hostname.replace(/\.$/, "") : host;
  return url.port === "" ? name : `${name}:${url.port}`;
}

/**
 * The exchange and, where the profile has them, its redirects. Each hop is validated, resolved and checked anew and sees
 * nothing of the headers and the body that were meant for the first.
 */
export async function follow(
  request: EgressRequest,
  first: { target: Target; headers: Map<string, string> },
  course: Course,
  means: Means,
): Promise<EgressResult> {
  const { limits, signal } = course;
  let { target, headers } = first;
  for (let hop = 0; ; hop++) {
    const connected = await connectChecked(target, { ...means, limits, signal });
    if ("fault" in connected) return unconnected(connected, course);
    const { socket, remoteAddress } = connected;
    const usedMs = sinceStart(course, performance.now());
    if (usedMs > limits.totalMs) {
      socket.destroy();
      return late(course);
    }
    const { method } = request;
    const path = target.url.pathname + target.url.search;
    const question = { method, host: hostOf(target), path, headers, body: hop === 0 ? request.body : undefined };
    const ending = await Exchange.run(socket, question, limits, usedMs, signal);
    course.startedAt ??= ending.sentAt;
    const location = hop < limits.hops ? redirectOf(ending, method, target.url) : null;
    if (location === null) return ended(ending, course, { remoteAddress, url: target.url.href });
    const verdict = validateUrl(location, means.rules);
    if (!verdict.ok) return unconnected({ ...verdict, fault: "refused", says: `redirect: ${verdict.says}` }, course);
    target = verdict.target;
    headers = afterRedirect(headers);
  }
}
