const MIB = 1024 * 1024;

/** Limits on the cost of one document and on the size of its answer. Only the third group shortens the answer. */
export const EXTRACT_LIMITS = {
  /** Enforced from outside by killing the child: processor time, real time, memory and output. */
  cpuMs: 10_000,
  /** Processor time after which the child is killed if others wait. */
  sharedCpuMs: 3_000,
  wallMs: 40_000,
  rssBytes: 512 * MIB,
  outputBytes: 8 * MIB,
  /** Heap of the child, MiB. */
  heapMib: 320,

  /** Enforced by the child: tags and entities of HTML, and the nesting of elements. */
  markup: 200_000,
  depth: 512,
  /** Files of an Office document, their bytes once unpacked, tags of its XML, and rows and cells of its sheets. */
  entries: 5_000,
  unpackedBytes: 128 * MIB,
  xmlTags: 1_000_000,
  sheetRows: 100_000,
  sheetCells: 1_000_000,
  /** Pages (slides), and objects and pieces of text of a PDF. */
  pages: 500,
  objects: 200_000,
  items: 400_000,

  /** Size of the answer; more is left out and named in `cut`. */
  textChars: 1_000_000,
  headings: 1_000,
  links: 2_000,
  urlChars: 1_024,
  tables: 200,
  cells: 50_000,
  cellChars: 600_000,
  /** Most elements of a page whose main text is searched; a larger page is returned whole. */
  mainElements: 20_000,
} as const;

/** The limits of one extraction. */
export type ExtractLimits = { readonly [name in keyof typeof EXTRACT_LIMITS]: number };

/** Returns limits for an answer with only the text, at most `textChars` of it. */
export const textOnly = (textChars: number): Partial<ExtractLimits> => ({
  textChars,
  headings: 0,
  links: 0,
  tables: 0,
});
