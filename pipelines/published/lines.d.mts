/** Cuts chunks into lines, counts them and notes the longest, the one that is not ended yet included. */
export declare class Lines {
  /**
   * @param maxLine longer ones are counted and not handed out: no stranger's line fills the memory
   * @param onLine told of each line, without its newline; may not keep it, since its memory is used again
   */
  constructor(maxLine: number, onLine?: (line: Buffer) => void);
  add(chunk: Buffer): void;
  count: number;
  longest: number;
  /** Does it end behind a newline? */
  readonly isWhole: boolean;
}

/** What a text of lines is: bytes, lines, the longest of them without its newline, and the hash of all. */
export interface TextOfLines {
  size: number;
  lines: number;
  longest: number;
  sha256: string;
}

/** The same of a text, and its length and hash. */
export declare class TextFacts {
  constructor(maxLine: number, onLine?: (line: Buffer) => void);
  add(chunk: Buffer): void;
  end(): TextOfLines;
}
