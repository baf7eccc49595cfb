import type { Config } from "../../../infra/config.ts";
import { FetchedUrl } from "../../schemas/extract.ts";
import { fetchOperatorJson } from "./operator-json.ts";

/** Finds addresses for questions that name none. */
export interface SearchProvider {
  /** Description of the search, which the brief shows to its reader. */
  readonly says: string;
  /** Returns addresses of pages that may answer a question, best first. @throws Error when the search fails */
  find(question: string, signal?: AbortSignal): Promise<string[]>;
}

/** Largest number of addresses of one search that are read. */
const MAX_FOUND = 5;
const REQUEST_LIMITS = { timeoutMs: 10_000, maxBytes: 1024 * 1024 };

/** Returns the value at a JSON pointer (RFC 6901); undefined when there is none. */
function valueAt(value: unknown, pointer: string): unknown {
  const names = pointer.split("/").slice(1);
  return names.reduce((one: unknown, name) => {
    const key = name.replaceAll("~1", "/").replaceAll("~0", "~");
    return typeof one === "object" && one !== null && Object.hasOwn(one, key) ? Reflect.get(one, key) : undefined;
  }, value);
}

/** Creates a provider that asks a search engine by GET for JSON, such as SearXNG. */
export function createSearchProvider({
  url,
  headers,
  results,
  address,
}: NonNullable<Config["brief"]["search"]>): SearchProvider {
  return {
    says: `what a search by ${new URL(url.replaceAll("{question}", "")).hostname} found`,
    async find(question, signal) {
      const searchUrl = url.replaceAll("{question}", encodeURIComponent(Buffer.from(question).toString("utf8")));
      const list = valueAt(await fetchOperatorJson({ url: searchUrl, headers, ...REQUEST_LIMITS, signal }), results);
      if (!Array.isArray(list)) throw new Error("its answer has no list of results");
      const addresses = list
        .map((one) => FetchedUrl.safeParse(valueAt(one, address)).data)
        .filter((one) => one !== undefined);
      return [...new Set(addresses)].slice(0, MAX_FOUND);
    },
  };
}
