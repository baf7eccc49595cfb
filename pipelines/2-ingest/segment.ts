import { BytesColumn, LongColumn } from "../../infra/lake/parquet/columns.ts";
import { type NamedColumn, parquetFile } from "../../infra/lake/parquet/file.ts";
import { RepeatingColumn, Values } from "../../infra/lake/parquet/repeating-column.ts";
import type { OpenedBatch } from "../../infra/log/packed.ts";
import { KnownProbes } from "./known-probes.ts";
import { type BodyText, type NumberedCut, ProbeCuts } from "./probe-cuts.ts";

/** What a segment keeps of a record beside its id and its body. */
export interface Facts {
  offset: number;
  type: string;
  key: string;
  cap: string | null;
  /** Unix ms. */
  observedMs: number;
  producer: string;
  v: number;
  /** Unix ms. */
  appendedMs: number;
  /** Members of the envelope that we do not know, as JSON text. */
  extra: string | null;
}

/** A record that the readers of today take, as a segment keeps it. */
export interface Row extends Facts {
  eventId: string;
  /** The body's text as it came: UTF-8, or where it stands in the text of the record, from which the segment may cut it. */
  body: Uint8Array | BodyText;
}

const isText = (body: Row["body"]): body is BodyText => "of" in body;

/** A body as it came, UTF-8. */
export const bodyBytes = (body: Row["body"]): Uint8Array =>
  isText(body) ? Buffer.from(body.of.slice(body.from, body.end)) : body;

/**
 * The rows of one segment on their way into its Parquet file. They are packed page by page as they come, so a batch is
 * held packed and never as text. What names repeat in (keys, types) is kept once; ids and bodies stand as they are.
 *
 * Bodies of probes are kept as shape and cuts (probe-cuts.ts), in columns of their own that a file without any does not
 * have, and other bodies beside them in `uncut` instead of `body`. Files from before have no cuts: sql/01_bodies reads both.
 */
export class Segment {
  readonly #topic = new RepeatingColumn<string>();
  readonly #part = new RepeatingColumn<number>();
  readonly #offset = new LongColumn();
  readonly #eventId = new BytesColumn();
  readonly #type = new RepeatingColumn<string>();
  /** Nearly every record's key is its capability. */
  readonly #keys = new Values<string>();
  readonly #key = new RepeatingColumn(this.#keys);
  readonly #cap = new RepeatingColumn(this.#keys);
  readonly #observedAt = new LongColumn(1_000);
  readonly #producer = new RepeatingColumn<string>();
  readonly #v = new RepeatingColumn<number>();
  readonly #appendedAt = new LongColumn(1_000);
  readonly #body = new BytesColumn();
  readonly #extra = new RepeatingColumn<string>();
  readonly #shapes = new Values<string>();
  readonly #cuts = new ProbeCuts(this.#shapes);
  readonly #known = new KnownProbes(this.#cuts);
  readonly #shape = new RepeatingColumn(this.#shapes);
  readonly #measured = new BytesColumn();
  readonly #block = new RepeatingColumn<number>();
  readonly #minute = new RepeatingColumn<number>();
  readonly #sha = new RepeatingColumn<string>();
  #rows = 0;

  constructor(private readonly place: { topic: string; partition: number }) {}

  get rows(): number {
    return this.#rows;
  }

  /** One row; offsets rise. */
  add(row: Row): void {
    const key = this.#keys.numberOf(row.key);
    const { type, body } = row;
    const cut = isText(body) ? this.#cuts.cut(type, key, body) : null;
    if (cut) this.#known.learn(row, key);
    else this.#body.add(bodyBytes(body));
    this.#eventId.addAscii(row.eventId);
    this.#add(row, key, cut);
  }

  /** The record as a row, if it is one that readers take for what came before it; else nothing, and they have to be asked. */
  addKnown(batch: OpenedBatch, i: number): boolean {
    const known = this.#known.find(batch, i);
    if (known === null) return false;
    this.#cuts.took();
    this.#eventId.addPiece(batch.bytes, batch.idAt(i), batch.idEnd(i));
    this.#add(known.facts, known.key, known.body.cut);
    return true;
  }

  #add(row: Facts, key: number, cut: NumberedCut | null): void {
    this.#topic.add(this.place.topic);
    this.#part.add(this.place.partition);
    this.#offset.add(row.offset);
    this.#type.add(row.type);
    this.#key.addNumber(key);
    if (row.cap === row.key) this.#cap.addNumber(key);
    else this.#cap.add(row.cap);
    this.#observedAt.add(row.observedMs);
    this.#producer.add(row.producer);
    this.#v.add(row.v);
    this.#appendedAt.add(row.appendedMs);
    this.#extra.add(row.extra);
    this.#shape.addNumber(cut?.number ?? null);
    this.#block.add(cut?.block ?? null);
    this.#minute.add(cut?.minute ?? null);
    this.#sha.add(cut?.sha ?? null);
    if (cut) {
      this.#body.addNull();
      this.#measured.addAscii(cut.measured);
    } else {
      this.#measured.addNull();
    }
    this.#rows++;
  }

  /** The whole file. Nothing may be added any more. */
  close(): Uint8Array {
    const isCut = this.#body.nulls > 0;
    return parquetFile(this.#rows, [
      { name: "topic", kind: "text", column: this.#topic },
      { name: "part", kind: "short", column: this.#part },
      { name: "offset", kind: "long", column: this.#offset },
      { name: "event_id", kind: "text", column: this.#eventId },
      { name: "type", kind: "text", column: this.#type },
      { name: "key", kind: "text", column: this.#key },
      { name: "cap", kind: "text", column: this.#cap },
      { name: "observed_at", kind: "moment", column: this.#observedAt },
      { name: "producer", kind: "text", column: this.#producer },
      { name: "v", kind: "short", column: this.#v },
      { name: "appended_at", kind: "moment", column: this.#appendedAt },
      { name: isCut ? "uncut" : "body", kind: "text", column: this.#body },
      { name: "extra", kind: "text", column: this.#extra },
      ...(isCut ? this.#cutColumns() : []),
    ]);
  }

  #cutColumns(): NamedColumn[] {
    return [
      { name: "shape", kind: "text", column: this.#shape },
      { name: "measured", kind: "text", column: this.#measured },
      { name: "block", kind: "int", column: this.#block },
      { name: "minute", kind: "int", column: this.#minute },
      { name: "sha", kind: "text", column: this.#sha },
    ];
  }
}
