import { compileTemplate, segmentsOf, type Template } from "../../pipelines/record/template.ts";
import { pathKey } from "../../pipelines/record/url.ts";

/** What an id stands for. It never changes, since the id is made of it. */
export interface NamedEndpoint {
  cap: string;
  url: string;
  method: string;
}

/** A name whose url is a template, compiled when the name was added. */
export interface TemplateName extends NamedEndpoint, Template {}

const NONE: readonly never[] = [];

/**
 * Which ids a url may mean. Append-only and shared by all views: an id that a view does not hold yet is simply not
 * found through it, so growing the names under an old view changes none of its answers.
 */
export class UrlIndex {
  readonly #known = new Set<string>();
  readonly #byUrl = new Map<string, NamedEndpoint[]>();
  readonly #byPath = new Map<string, NamedEndpoint[]>();
  /** By literal prefix, in the order in which they were met. */
  readonly #templates = new Map<string, TemplateName[]>();

  add(name: NamedEndpoint): void {
    if (this.#known.has(name.cap)) return;
    this.#known.add(name.cap);
    push(this.#byUrl, name.url, name);
    const template = compileTemplate(name.url);
    if (template) push(this.#templates, template.prefix, { ...name, ...template });
    else push(this.#byPath, pathKey(name.url), name);
  }

  withUrl(normalised: string): readonly NamedEndpoint[] {
    return this.#byUrl.get(normalised) ?? NONE;
  }

  withPath(normalised: string): readonly NamedEndpoint[] {
    return this.#byPath.get(pathKey(normalised)) ?? NONE;
  }

  /**
   * Templates that a concrete url may fall under, longest literal prefix first, as one list for each prefix: the url's own
   * beginnings are looked up, so templates of other prefixes cost nothing.
   */
  *templatesFor(normalised: string): Generator<readonly TemplateName[]> {
    let prefix = pathKey(normalised);
    for (let left = segmentsOf(normalised).length; left >= 0; left--) {
      const templates = this.#templates.get(prefix);
      if (templates) yield templates;
      prefix = prefix.slice(0, prefix.lastIndexOf("/"));
    }
  }
}

function push<T>(map: Map<string, T[]>, key: string, name: T): void {
  const held = map.get(key);
  if (held) held.push(name);
  else map.set(key, [name]);
}
