import { isTemplate, literalPrefix, pathKey } from "../../pipelines/record/url.ts";

/** What an id stands for. It never changes, since the id is made of it. */
export interface Name {
  cap: string;
  url: string;
  method: string;
}

export interface Template extends Name {
  literal: number;
}

const NONE: readonly never[] = [];

/**
 * Which ids a url may mean. Append-only and shared by all views: an id that a view does not hold yet is simply not
 * found through it, so growing the names under an old view changes none of its answers.
 */
export class Names {
  readonly #known = new Set<string>();
  readonly #byUrl = new Map<string, Name[]>();
  readonly #byPath = new Map<string, Name[]>();
  /** By origin, longest literal prefix first. */
  readonly #templates = new Map<string, Template[]>();

  add(name: Name): void {
    if (this.#known.has(name.cap)) return;
    this.#known.add(name.cap);
    push(this.#byUrl, name.url, name);
    if (!isTemplate(name.url)) {
      push(this.#byPath, pathKey(name.url), name);
      return;
    }
    const { origin } = new URL(name.url);
    const templates = this.#templates.get(origin) ?? [];
    templates.push({ ...name, literal: literalPrefix(name.url) });
    templates.sort((a, b) => b.literal - a.literal);
    this.#templates.set(origin, templates);
  }

  withUrl(normalised: string): readonly Name[] {
    return this.#byUrl.get(normalised) ?? NONE;
  }

  withPath(normalised: string): readonly Name[] {
    return this.#byPath.get(pathKey(normalised)) ?? NONE;
  }

  templatesOf(origin: string): readonly Template[] {
    return this.#templates.get(origin) ?? NONE;
  }
}

function push(map: Map<string, Name[]>, key: string, name: Name): void {
  const held = map.get(key);
  if (held) held.push(name);
  else map.set(key, [name]);
}
