/**
 * Reads the challenges of scheme `Payment` (of the protocol mpp) in a `WWW-Authenticate` header (RFC 9110 section
 * 11.6.1), as payment clients do. The observer, which records what sellers demand, uses everything that can be read;
 * a guard in front of a wallet accepts only exact headers, which all clients read alike. Takes time linear in the
 * header's length; only the first 16 KiB are read.
 */

/** Length of a header of which the rest is not read, characters. Our own HTTP client refuses longer headers. */
const MAX_HEADER_CHARS = 16_384;
/** Largest number of challenges that are read from one header, since a record of a 402 holds no more offers. */
const MAX_CHALLENGES = 64;

export interface Challenge {
  /** Parameters by name in lower case; of a repeated name the first value. */
  params: Map<string, string>;
  /**
   * Is a parameter repeated? RFC 9110 section 11.2 forbids it, and the official mpp client then ignores the
   * challenge.
   */
  isRepeated: boolean;
}

export interface Challenges {
  challenges: Challenge[];
  /**
   * Does the header follow the grammar, without repeated parameters and without escapes in {@link SIGNED_PARAMETERS}?
   * Only then do all clients read it alike.
   */
  isExact: boolean;
}

/** Parameters whose values determine what a wallet signs. */
const SIGNED_PARAMETERS = new Set(["id", "method", "intent", "request", "expires"]);

const SEPARATORS = /[\s,]*/y;
const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;
const SPACE = /\s*/y;
/**
 * Matches the single value that may follow a scheme's name in place of parameters, such as `YII==` in `Negotiate
 * YII==` (token68 of RFC 9110).
 */
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=\s*(?:,|$))/y;
/**
 * Matches a quoted text. A quoted text that is not closed ends at the end of the header. The expression does not
 * backtrack.
 */
const QUOTED = /"((?:[^"\\]|\\.)*)("?)/sy;
/** Matches a value without quotes as tolerant clients read it, up to white space, a comma or a quote. */
const UNQUOTED = /[^\s,"]*/y;
const WHOLE_TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/**
 * Reads a header from left to right. At the first place that two clients may read differently, `#isExact` becomes
 * false.
 */
class Scanner {
  #position = 0;
  #isExact: boolean;
  readonly #challenges: Challenge[] = [];
  #current: Challenge | null = null;
  readonly #header: string;

  constructor(header: string) {
    this.#header = header.slice(0, MAX_HEADER_CHARS);
    this.#isExact = header.length <= MAX_HEADER_CHARS;
  }

  read(): Challenges {
    for (;;) {
      const separators = this.#take(SEPARATORS)!;
      if (this.#position >= this.#header.length) break;
      const beginsElement = this.#position === separators.length || separators.includes(",");
      if (!/^[ \t,]*$/.test(separators)) this.#isExact = false;
      const token = this.#take(TOKEN);
      if (token === null) this.#skipInvalid();
      else if (!this.#readParameter(token)) this.#beginScheme(token, beginsElement);
    }
    const challenges = this.#challenges.filter(({ params }) => params.size > 0);
    if (challenges.some(({ isRepeated }) => isRepeated) || challenges.length < this.#challenges.length)
      this.#isExact = false;
    return { challenges, isExact: this.#isExact };
  }

  #take(expression: RegExp): string | null {
    expression.lastIndex = this.#position;
    const found = expression.exec(this.#header);
    if (found === null) return null;
    this.#position = expression.lastIndex;
    return found[0];
  }

  /** Skips text that the grammar does not allow here: a whole quoted text, else one character. */
  #skipInvalid(): void {
    this.#isExact = false;
    if (this.#take(QUOTED) === null) this.#position++;
  }

  /** Reads `= value` after a name and stores the parameter; returns false if no `=` follows. */
  #readParameter(name: string): boolean {
    const afterName = this.#position;
    this.#take(SPACE);
    if (this.#header[this.#position] !== "=") {
      this.#position = afterName;
      return false;
    }
    this.#position++;
    this.#take(SPACE);
    const key = name.toLowerCase();
    const value = this.#readValue(SIGNED_PARAMETERS.has(key));
    if (value === null || this.#current === null) return true;
    if (this.#current.params.has(key)) this.#current.isRepeated = true;
    else this.#current.params.set(key, value);
    return true;
  }

  /**
   * Reads a value; null if there is none.
   * @param isSigned true if an escape in the value makes the header inexact
   */
  #readValue(isSigned: boolean): string | null {
    QUOTED.lastIndex = this.#position;
    const quoted = QUOTED.exec(this.#header);
    if (quoted === null) return this.#readUnquoted();
    this.#position = QUOTED.lastIndex;
    const [, inner, closingQuote] = quoted;
    // After the closing quote, white space without a comma is allowed too, since all clients accept it between two
    // parameters.
    if (closingQuote === "" || !/^(?:[\s,]|$)/.test(this.#header.slice(this.#position, this.#position + 1)))
      this.#isExact = false;
    if (isSigned && inner!.includes("\\")) this.#isExact = false;
    return closingQuote === "" ? null : removeEscapes(inner!);
  }

  #readUnquoted(): string | null {
    const value = this.#take(UNQUOTED)!;
    const endsElement = /^\s*(?:,|$)/.test(this.#header.slice(this.#position));
    if (!WHOLE_TOKEN.test(value) || !endsElement) this.#isExact = false;
    return value === "" ? null : value;
  }

  /**
   * Begins a challenge, after the name of its scheme was read. Challenges of schemes other than `Payment` are
   * skipped.
   * @param beginsElement true if the scheme's name follows a comma or begins the header
   */
  #beginScheme(name: string, beginsElement: boolean): void {
    const nextChar = this.#header[this.#position];
    if (nextChar !== undefined && !/[\s,]/.test(nextChar)) {
      this.#isExact = false;
      return;
    }
    if (!beginsElement) this.#isExact = false;
    this.#current = null;
    if (name.toLowerCase() === "payment") {
      if (this.#challenges.length >= MAX_CHALLENGES) this.#isExact = false;
      else {
        this.#current = { params: new Map(), isRepeated: false };
        this.#challenges.push(this.#current);
      }
    }
    const afterScheme = this.#position;
    this.#take(SPACE);
    if (this.#take(TOKEN68) === null) this.#position = afterScheme;
  }
}

/**
 * Removes the escapes of a quoted text. `\uXXXX` becomes a character, since the official mpp server writes characters
 * beyond Latin-1 in this form.
 */
const removeEscapes = (inner: string): string =>
  inner.replace(/\\(?:u([0-9A-Fa-f]{4})|(.))/gs, (_, hex: string | undefined, char: string) =>
    hex === undefined ? char : String.fromCharCode(Number.parseInt(hex, 16)),
  );

/**
 * Reads all `Payment` challenges of a header, which may contain several, and challenges of other schemes between them.
 */
export const readChallenges = (header: string): Challenges => new Scanner(header).read();
