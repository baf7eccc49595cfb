const MIB = 1024 * 1024;

/**
 * Limits on the cost of extracting one document and on the size of the answer. A document that exceeds a limit of the
 * first two groups is refused; one that exceeds a limit of the third group gets a shortened answer.
 */
export const EXTRACT_LIMITS = {
  /**
   * The parent process kills the child (the process that extracts one document) at these limits of processor time
   * (`cpuMs`), real time (`wallMs`), memory (`rssBytes`) and output.
   */
  cpuMs: 10_000,
  /** Processor time after which the child is killed if documents of other clients wait for its place. */
  sharedCpuMs: 3_000,
  wallMs: 40_000,
  rssBytes: 512 * MIB,
  outputBytes: 8 * MIB,
  /** Largest JavaScript heap of the child, MiB. */
  heapMib: 320,

  /**
   * The child enforces the limits of this group. `markup`: tags and entities of an HTML document together; `depth`:
   * depth of nested elements.
   */
  markup: 200_000,
  depth: 512,
  /** Files in an Office document, their bytes once unpacked, tags of its XML, and rows and cells of its sheets. */
  entries: 5_000,
  unpackedBytes: 128 * MIB,
  xmlTags: 1_000_000,
  sheetRows: 100_000,
  sheetCells: 1_000_000,
  /**
   * Pages of a PDF or slides of a presentation (`pages`); objects (`objects`) and pieces of text (`items`) in a PDF.
   */
  pages: 500,
  objects: 200_000,
  items: 400_000,

  /** Limits on the answer. What exceeds one is left out, and the answer's `cut` names what was shortened. */
  textChars: 1_000_000,
  headings: 1_000,
  links: 2_000,
  urlChars: 1_024,
  tables: 200,
  cells: 50_000,
  cellChars: 600_000,
  /**
   * Largest number of elements of an HTML page whose main text is searched for. Of a larger page the whole text is
   * returned.
   */
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
