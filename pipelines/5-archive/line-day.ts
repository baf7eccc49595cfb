import { DAY_MS } from "../record/time.ts";
import { ArchiveUnproven } from "./errors.ts";

/** `YYYY-MM-DDT`, which every line of a file says, and `HH:MM:SS.mmm` behind it. */
const DATE_BYTES = 11;
const [ZERO, COLON, POINT] = [0x30, 0x3a, 0x2e];

/** The UTC day of a file, and the times of its lines as RFC 3339 prints them, milliseconds always. */
export class LineDay {
  readonly #date: Uint8Array;
  readonly #from: number;

  /** @param day `YYYY-MM-DD` */
  constructor(readonly day: string) {
    this.#date = Buffer.from(`${day}T`, "latin1");
    this.#from = Date.parse(day);
  }

  /** Write the day where a time stands; {@link putTime} writes what is left of it. */
  putDate(into: Uint8Array, at: number): void {
    into.set(this.#date, at);
  }

  /** @param time Unix ms @param at of the whole time @throws ArchiveUnproven when it is of another day */
  putTime(time: number, into: Uint8Array, at: number): void {
    const ms = time - this.#from;
    if (!(ms >= 0 && ms < DAY_MS)) throw new ArchiveUnproven("lines of a file", `times of ${this.day}`, `${time}`);
    const place = at + DATE_BYTES;
    const seconds = Math.floor(ms / 1_000);
    const minutes = Math.floor(seconds / 60);
    const hours = Math.floor(minutes / 60);
    const rest = ms - seconds * 1_000;
    putTwo(hours, into, place);
    into[place + 2] = COLON;
    putTwo(minutes - hours * 60, into, place + 3);
    into[place + 5] = COLON;
    putTwo(seconds - minutes * 60, into, place + 6);
    into[place + 8] = POINT;
    const hundreds = Math.floor(rest / 100);
    into[place + 9] = ZERO + hundreds;
    putTwo(rest - hundreds * 100, into, place + 10);
  }

  /** Is this moment, in Unix ms, one of the day? */
  has(time: number): boolean {
    return time >= this.#from && time < this.#from + DAY_MS;
  }
}

function putTwo(number: number, into: Uint8Array, at: number): void {
  const tens = Math.floor(number / 10);
  into[at] = ZERO + tens;
  into[at + 1] = ZERO + number - tens * 10;
}
