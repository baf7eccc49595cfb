import type { Log, Packed } from "../../infra/log/log.ts";
import type { Range } from "./judging.ts";

type Reader = NonNullable<Log["packed"]>;

/** Goes through the packed batches of ranges, of which neighbours share the batch between them. */
export class PackedCursor {
  #batches: AsyncGenerator<readonly Packed[], void, undefined> | null = null;
  #fetched: readonly Packed[] = [];
  #at = 0;
  #place = "";
  /** Where the last range ended. */
  #end = -1;

  constructor(private readonly read: Reader) {}

  /** Every batch that has records of the range, in their order. @throws what the log throws */
  async *of({ topic, partition, from, end }: Range): AsyncGenerator<Packed, void, undefined> {
    const place = `${topic}/${partition}`;
    if (place !== this.#place || from !== this.#end) {
      this.close();
      this.#place = place;
      this.#batches = this.read(topic, partition, from);
    }
    // Until the range is through, nobody can go on from here.
    this.#end = -1;
    for (;;) {
      const one = await this.#peek();
      if (!one || one.first >= end) break;
      yield one;
      if (one.next > end) break;
      this.#at++;
      if (one.next === end) break;
    }
    this.#end = end;
  }

  /** What is under way is dropped. */
  close(): void {
    void this.#batches?.return().catch(() => undefined);
    this.#batches = null;
    this.#fetched = [];
    this.#at = 0;
    this.#end = -1;
  }

  async #peek(): Promise<Packed | undefined> {
    while (this.#at === this.#fetched.length) {
      const more = await this.#batches!.next();
      if (more.done) return undefined;
      this.#fetched = more.value;
      this.#at = 0;
    }
    return this.#fetched[this.#at];
  }
}
