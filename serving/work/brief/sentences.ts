/**
 * Splits untrusted texts into sentences, by Intl.Segmenter (Unicode Standard Annex 29). What is not prose is left out.
 */

/** A text to select sentences from. */
export interface RankingText {
  text: string;
  /** True if lines are wrapped, so that an empty line ends a paragraph. False if each line is a paragraph. */
  isWrapped: boolean;
  /** Headings, which are no sentences: offset and length of each, ascending. */
  headings?: readonly { offset: number; length: number }[];
}

/** A piece of a text, unchanged, with its offset (UTF-16 units). */
export interface Piece {
  offset: number;
  text: string;
}

/** Shortest and longest sentence, characters; others are left out. */
const SENTENCE_CHARS = { min: 20, max: 600 };

const segmenter = new Intl.Segmenter("en", { granularity: "sentence" });
/** Largest number of characters that are segmented at once, since the time for a text grows faster than its length. */
const WINDOW_CHARS = 16_384;

/** Yields the paragraphs of a text with their offsets. */
function* paragraphsOf({ text, isWrapped }: RankingText): Generator<Piece> {
  const separator = isWrapped ? "\n\n" : "\n";
  let from = 0;
  for (const paragraph of text.split(separator)) {
    yield { offset: from, text: paragraph };
    from += paragraph.length + separator.length;
  }
}

/** Patterns of Markdown: a heading with `#`, an underlined heading, the edge of a code block, and indented code. */
const HEADING_LINE = /^ {0,3}#{1,6} [^\n]*(?:\n|$)/;
const UNDERLINED_HEADING = /^[^\n]*\n {0,3}(?:={3,}|-{3,}) *(?:\n|$)/;
const FENCE = /^ {0,3}(?:```|~~~)/;
const INDENTED_CODE = /^(?: {4}|\t)/;
/** Returns the length of the heading with which a paragraph of Markdown begins; 0 without one. */
const headingLength = (paragraph: string): number =>
  (HEADING_LINE.exec(paragraph) ?? UNDERLINED_HEADING.exec(paragraph))?.[0].length ?? 0;

/**
 * Yields all sentences of one paragraph, trimmed. Line feeds become spaces first, since the segmenter would end a
 * sentence at each.
 */
function* segmentsOf({ offset, text }: Piece): Generator<Piece> {
  for (let from = 0; from < text.length; ) {
    const segments = [...segmenter.segment(text.slice(from, from + WINDOW_CHARS).replaceAll("\n", " "))];
    // The last segment may go on beyond the window, so the next window begins with it. A segment that fills a whole
    // window is longer than any sentence that is used, so it is taken as it is.
    const usedSegments = from + WINDOW_CHARS >= text.length || segments.length === 1 ? segments : segments.slice(0, -1);
    for (const { segment, index } of usedSegments) {
      const start = from + index + segment.length - segment.trimStart().length;
      yield { offset: offset + start, text: text.slice(start, from + index + segment.trimEnd().length) };
    }
    from += usedSegments.reduce((sum, { segment }) => sum + segment.length, 0);
  }
}

/** Matches texts that begin like a shell command or a line of a program. */
const COMMAND =
  /^(?:[$#>] |curl |npm |npx |pip |git |sudo |import |export |const |let |var |def |function |return |(?:if|for|while|switch) \(|<\/?\w)/;
const CODE_MARKS = /[{}<>=;|\\[\]_$^~]|%[0-9A-F]{2}|[\w\]]\(|::|->|\/\//g;
/** Largest number of marks of code per character of prose. */
const MAX_CODE_MARK_SHARE = 0.05;

/** Reports whether a text reads as code or data: a command, or many characters that prose hardly has. */
export function isCode(text: string): boolean {
  const marks = text.match(CODE_MARKS)?.length ?? 0;
  return COMMAND.test(text) || marks / text.length > MAX_CODE_MARK_SHARE;
}

/** Yields the paragraphs of a wrapped text without its headings and code blocks, which Markdown's marks show. */
function* proseOf(paragraphs: Iterable<Piece>): Generator<Piece> {
  let inFence = false;
  for (const { offset, text } of paragraphs) {
    const fences = text.split("\n").filter((line) => FENCE.test(line)).length;
    const wasInFence = inFence;
    inFence = fences % 2 === 1 ? !inFence : inFence;
    if (wasInFence || fences > 0 || INDENTED_CODE.test(text)) continue;
    const head = headingLength(text);
    yield { offset: offset + head, text: text.slice(head) };
  }
}

/**
 * Yields the sentences of a text, unchanged, with their offsets. A sentence does not cross paragraphs. Headings, code,
 * rows of tables, and sentences that are too short or too long are left out.
 */
export function* sentencesOf(source: RankingText): Generator<Piece> {
  const headings = source.headings ?? [];
  let nextHeading = 0;
  for (const paragraph of source.isWrapped ? proseOf(paragraphsOf(source)) : paragraphsOf(source)) {
    for (const sentence of segmentsOf(paragraph)) {
      const { offset, text } = sentence;
      while (nextHeading < headings.length && headings[nextHeading]!.offset + headings[nextHeading]!.length <= offset)
        nextHeading++;
      const isHeading = nextHeading < headings.length && headings[nextHeading]!.offset < offset + text.length;
      if (isHeading || text.length < SENTENCE_CHARS.min || text.length > SENTENCE_CHARS.max) continue;
      if (!text.includes("\t") && !isCode(text)) yield sentence;
    }
  }
}

/** Number of characters before and after a quotation in which the ends of its sentences are searched for. */
const CONTEXT_CHARS = 2_000;

/**
 * Widens a quotation to the whole sentences that contain it, so that nothing that changes its sense is cut off.
 * @returns null when these sentences are longer together than a sentence may be, cross a paragraph, or do not begin and
 * end within {@link CONTEXT_CHARS} of the quotation
 */
export function wholeSentences({ text, isWrapped }: RankingText, offset: number, length: number): Piece | null {
  const gap = isWrapped ? "\n\n" : "\n";
  const gapBefore = text.lastIndexOf(gap, offset - 1);
  const paragraphStart = gapBefore === -1 || offset === 0 ? 0 : gapBefore + gap.length;
  const gapAfter = text.indexOf(gap, offset + length);
  const end = gapAfter === -1 ? text.length : gapAfter;
  const head = isWrapped ? headingLength(text.slice(paragraphStart, Math.min(end, paragraphStart + CONTEXT_CHARS))) : 0;
  const start = paragraphStart + head <= offset ? paragraphStart + head : paragraphStart;
  const from = Math.max(start, offset - CONTEXT_CHARS);
  const to = Math.min(end, offset + length + CONTEXT_CHARS);
  const pieces = [...segmentsOf({ offset: from, text: text.slice(from, to) })];
  const overlapping = pieces.filter(
    (piece) => piece.offset < offset + length && piece.offset + piece.text.length > offset,
  );
  const [first, last] = [overlapping[0], overlapping.at(-1)];
  if (!first || !last) return null;
  // A sentence at the edge of the searched characters may begin or end outside of them.
  if ((first === pieces[0] && from > start) || (last === pieces.at(-1) && to < end)) return null;
  const widened = text.slice(first.offset, last.offset + last.text.length);
  return widened.length > SENTENCE_CHARS.max || widened.includes(gap) ? null : { offset: first.offset, text: widened };
}

/** Returns all sentences of a quotation, also those that {@link sentencesOf} leaves out. */
export const sentencesIn = (quotation: string): string[] =>
  [...segmentsOf({ offset: 0, text: quotation })].map(({ text }) => text);
