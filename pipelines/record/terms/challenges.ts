/**
 * Reads the challenges of scheme `Payment` in a `WWW-Authenticate` header (RFC 9110 section 11.6.1), as payment clients
 * do. The observer uses everything that can be read; a guard in front of a wallet accepts only exact headers, which all
 * clients read alike. Takes time linear in the header, of which 16 KiB are read.
 */

/** Longest header that is read, characters. Our own egress refuses longer ones. */
const MAX_HEADER = 16_384;
/** Most challenges that are read from one header: a record holds no more offers. */
const MAX_CHALLENGES = 64;

export interface Challenge {
  /** Parameters by name in lower case; of a repeated name the first value. */
  params: Map<string, string>;
  /** Is a parameter repeated? RFC 9110 section 11.2 forbids it, and the stock client then reads nothing. */
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
 * A single value that may follow a scheme's name in place of parameters, as in `Negotiate YII==` (token68 of RFC 9110).
 */
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=\s*(?:,|$))/y;
/** A quoted text. A text that is not closed runs to the end of the header. The expression does not backtrack. */
const QUOTED = /"((?:[^"\\]|\\.)*)("?)/sy;
/** A value without quotes, as tolerant clients read it: up to white space, a comma or a quote. */
const UNQUOTED = /[^\s,"]*/y;
const WHOLE_TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Reads a header from left to right. `#exact` becomes false at the first place that clients may read differently. */
class Scanner {
  #at = 0;
  #exact: boolean;
  readonly #found: Challenge[] = [];
  #current: Challenge | null = null;
  readonly #header: string;

  constructor(header: string) {
    this.#header = header.slice(0, MAX_HEADER);
    this.#exact = header.length <= MAX_HEADER;
  }

  read(): Challenges {
    for (;;) {
      const between = this.#take(SEPARATORS)!;
      if (this.#at >= this.#header.length) break;
      const beginsElement = this.#at === between.length || between.includes(",");
      if (!/^[ \t,]*$/.test(between)) this.#exact = false;
      const token = this.#take(TOKEN);
      if (token === null) this.#skip();
      else if (!this.#parameter(token)) this.#scheme(token, beginsElement);
    }
    const challenges = this.#found.filter(({ params }) => params.size > 0);
    if (challenges.some(({ isRepeated }) => isRepeated) || challenges.length < this.#found.length) this.#exact = false;
    return { challenges, isExact: this.#exact };
  }

  #take(expression: RegExp): string | null {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#header);
    if (found === null) return null;
    this.#at = expression.lastIndex;
    return found[0];
  }

  /** Skips text that the grammar does not allow here: a whole quoted text, else one character. */
  #skip(): void {
    this.#exact = false;
    if (this.#take(QUOTED) === null) this.#at++;
  }

  /** Reads `= value` after a name and stores the parameter; false where no `=` follows. */
  #parameter(name: string): boolean {
    const behind = this.#at;
    this.#take(SPACE);
    if (this.#header[this.#at] !== "=") {
      this.#at = behind;
      return false;
    }
    this.#at++;
    this.#take(SPACE);
    const key = name.toLowerCase();
    const value = this.#value(SIGNED_PARAMETERS.has(key));
    if (value === null || this.#current === null) return true;
    if (this.#current.params.has(key)) this.#current.isRepeated = true;
    else this.#current.params.set(key, value);
    return true;
  }

  /** Reads a value; null where there is none. @param decides true: an escape in the value makes the header inexact */
  #value(decides: boolean): string | null {
    QUOTED.lastIndex = this.#at;
    const quoted = QUOTED.exec(this.#header);
    if (quoted === null) return this.#bare();
    this.#at = QUOTED.lastIndex;
    const [, inner, end] = quoted;
    // White space alone may follow too: all clients accept it in place of a comma between two parameters.
    if (end === "" || !/^(?:[\s,]|$)/.test(this.#header.slice(this.#at, this.#at + 1))) this.#exact = false;
    if (decides && inner!.includes("\\")) this.#exact = false;
    return end === "" ? null : unescaped(inner!);
  }

  #bare(): string | null {
    const value = this.#take(UNQUOTED)!;
    const behind = /^\s*(?:,|$)/.test(this.#header.slice(this.#at));
    if (!WHOLE_TOKEN.test(value) || !behind) this.#exact = false;
    return value === "" ? null : value;
  }

  /** Begins the challenge of a scheme. @param beginsElement true where the name follows a comma or begins the header */
  #scheme(name: string, beginsElement: boolean): void {
    const next = this.#header[this.#at];
    if (next !== undefined && !/[\s,]/.test(next)) {
      this.#exact = false;
      return;
    }
    if (!beginsElement) this.#exact = false;
    this.#current = null;
    if (name.toLowerCase() === "payment") {
      if (this.#found.length >= MAX_CHALLENGES) this.#exact = false;
      else {
        this.#current = { params: new Map(), isRepeated: false };
        this.#found.push(this.#current);
      }
    }
    const before = this.#at;
    this.#take(SPACE);
    if (this.#take(TOKEN68) === null) this.#at = before;
  }
}

/**
 * Removes escapes. `\uXXXX` becomes a character: the stock mpp server writes characters beyond Latin-1 in this form.
 */
const unescaped = (inner: string): string =>
  inner.replace(/\\(?:u([0-9A-Fa-f]{4})|(.))/gs, (_, hex: string | undefined, char: string) =>
    hex === undefined ? char : String.fromCharCode(Number.parseInt(hex, 16)),
  );

/** All `Payment` challenges of a header. Several may be folded into one line, with other schemes between them. */
export const readChallenges = (header: string): Challenges => new Scanner(header).read();
