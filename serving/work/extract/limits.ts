const MIB = 1024 * 1024;

/** What one document may cost us and what an answer holds of it. A document past one of the first two groups is no answer. */
export const EXTRACT_LIMITS = {
  /** Held from outside, by killing the child: processor time, time of the clock, memory and what it writes. */
  cpuMs: 10_000,
  /** Processor time after which it makes room for others that wait. */
  sharedCpuMs: 3_000,
  wallMs: 40_000,
  rssBytes: 512 * MIB,
  outputBytes: 8 * MIB,
  /** Heap of the child's own, MiB: what it makes of a document beyond this ends it. */
  heapMib: 320,

  /** Held by the child, which then says by how much. Tags and entities of HTML, and how deep elements nest. */
  markup: 200_000,
  depth: 512,
  /** Of a PDF: pages, objects, pieces of text on all pages. */
  pages: 500,
  objects: 200_000,
  items: 400_000,

  /** What an answer holds; of more than that the rest is left out, and `cut` says so. */
  textChars: 1_000_000,
  headings: 1_000,
  links: 2_000,
  urlChars: 1_024,
  tables: 200,
  cells: 20_000,
  cellChars: 400_000,
  /** Elements among which the main text is looked for; of a page with more the whole is given. */
  mainElements: 20_000,
} as const;

export type ExtractLimits = { readonly [name in keyof typeof EXTRACT_LIMITS]: number };

/** What an answer without lists is asked for with: the text alone, so much of it. */
export const textOnly = (textChars: number): Partial<ExtractLimits> => ({
  textChars,
  headings: 0,
  links: 0,
  tables: 0,
});
