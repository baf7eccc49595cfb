import { compileTemplate, segmentsOf, type Template } from "../../pipelines/record/template.ts";
import { pathKey } from "../../pipelines/record/url.ts";

/** An endpoint's capability id, and the url and method that the id is a hash of. */
export interface NamedEndpoint {
  cap: string;
  url: string;
  method: string;
}

/** An endpoint whose url is a template, with its compiled pattern. */
export interface TemplateName extends NamedEndpoint, Template {}

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
  readonly #templates = new Map<string, TemplateName[]>();

  add(name: NamedEndpoint): void {
    if (this.#addedCaps.has(name.cap)) return;
    this.#addedCaps.add(name.cap);
    push(this.#byUrl, name.url, name);
    push(this.#byOrigin, originOf(name.url), name);
    const template = compileTemplate(name.url);
    if (template) push(this.#templates, template.prefix, { ...name, ...template });
    else push(this.#byPath, pathKey(name.url), name);
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
  *templatesFor(normalised: string): Generator<readonly TemplateName[]> {
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

function push<T>(map: Map<string, T[]>, key: string, name: T): void {
  const list = map.get(key);
  if (list) list.push(name);
  else map.set(key, [name]);
}
