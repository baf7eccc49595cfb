import { compileTemplate, segmentsOf, type Template } from "../../pipelines/record/template.ts";
import { pathKey } from "../../pipelines/record/url.ts";

/** An endpoint's capability id, and the url and method that the id is a hash of. */
export interface NamedEndpoint {
  cap: string;
  url: string;
  method: string;
}

/** An endpoint whose url is a template, with its compiled pattern. */
export interface TemplateEndpoint extends NamedEndpoint, Template {}

const NO_ENDPOINTS: readonly never[] = [];

/**
 * Index of endpoint ids by url. It only grows and is shared by all views: a view ignores ids that it does not hold, so
 * additions do not change the answers of an old view.
 */
export class UrlIndex {
  readonly #addedCaps = new Set<string>();
  readonly #byUrl = new Map<string, NamedEndpoint[]>();
  readonly #byPath = new Map<string, NamedEndpoint[]>();
  readonly #byOrigin = new Map<string, NamedEndpoint[]>();
  /** Templates by their prefix (the url before its first placeholder), in the order in which they were added. */
  readonly #templates = new Map<string, TemplateEndpoint[]>();

  add(endpoint: NamedEndpoint): void {
    if (this.#addedCaps.has(endpoint.cap)) return;
    this.#addedCaps.add(endpoint.cap);
    addToList(this.#byUrl, endpoint.url, endpoint);
    addToList(this.#byOrigin, originOf(endpoint.url), endpoint);
    const template = compileTemplate(endpoint.url);
    if (template) addToList(this.#templates, template.prefix, { ...endpoint, ...template });
    else addToList(this.#byPath, pathKey(endpoint.url), endpoint);
  }

  withUrl(normalised: string): readonly NamedEndpoint[] {
    return this.#byUrl.get(normalised) ?? NO_ENDPOINTS;
  }

  withPath(normalised: string): readonly NamedEndpoint[] {
    return this.#byPath.get(pathKey(normalised)) ?? NO_ENDPOINTS;
  }

  /** Returns the endpoints with the same scheme, host and port, in the order in which they were added. */
  withOrigin(normalised: string): readonly NamedEndpoint[] {
    return this.#byOrigin.get(originOf(normalised)) ?? NO_ENDPOINTS;
  }

  /**
   * Yields the templates that may match a url, one list for each prefix of the url, the longest first. Templates with
   * other prefixes are not read.
   */
  *templatesFor(normalised: string): Generator<readonly TemplateEndpoint[]> {
    let prefix = pathKey(normalised);
    for (let segmentsLeft = segmentsOf(normalised).length; segmentsLeft >= 0; segmentsLeft--) {
      const templates = this.#templates.get(prefix);
      if (templates) yield templates;
      prefix = prefix.slice(0, prefix.lastIndexOf("/"));
    }
  }
}

/** Returns `https://host` of a normalised url. */
const originOf = (normalised: string): string => normalised.slice(0, normalised.indexOf("/", "https://".length));

function addToList<T>(map: Map<string, T[]>, key: string, item: T): void {
  const list = map.get(key);
  if (list) list.push(item);
  else map.set(key, [item]);
}
