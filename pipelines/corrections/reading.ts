import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openChain } from "../../infra/chain/commits.ts";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { readRecord } from "../record/envelope.ts";
import { copyScopeOf } from "../record/ids.ts";
import { rfc3339 } from "../record/time.ts";

/** The members of a log record that corrections need. */
export interface LogFact {
  eventId: string;
  type: string;
  /** The capability id; all topics that are read here have it as key. */
  key: string;
  observedAt: string;
  body: Record<string, unknown>;
}

interface RecordRow {
  event_id: string;
  type: string;
  key: string;
  observed_at: Date;
  body: string;
}

export interface LogHistoryParts {
  log: Pick<Log, "id" | "partitions" | "read">;
  privateStore: Store;
  /** Limits of the DuckDB engine that reads segments, from the settings of the lake; `memory_limit` such as "2GB". */
  lake: { memory_limit: string; threads: number };
}

/**
 * Reads records while the service runs: first the committed segments, then the rest from the log. The lake is not
 * read, since only one process can open it. Of several copies of a record only the first is returned, as in the lake.
 */
export class LogHistoryReader {
  private constructor(
    private readonly parts: LogHistoryParts,
    private readonly folder: string,
    private readonly engine: Lake,
  ) {}

  static async open(parts: LogHistoryParts): Promise<LogHistoryReader> {
    const folder = await mkdtemp(join(tmpdir(), "touchstone-reading-"));
    const { memory_limit: memoryLimit, threads } = parts.lake;
    try {
      const engine = await openLake(join(folder, "engine"), {
        memoryLimit,
        threads,
        init: [],
        readers: 1,
      });
      return new LogHistoryReader(parts, folder, engine);
    } catch (error) {
      await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.engine.close();
    await rm(this.folder, { recursive: true, force: true });
  }

  get partitions(): number {
    return this.parts.log.partitions;
  }

  /**
   * Yields all records of one partition that have this key (null: any key), in log order.
   * @throws DamagedChain, OffsetGone
   */
  async *readFacts(topic: string, partition: number, key: string | null): AsyncGenerator<LogFact> {
    const seenIds = new Set<string>();
    for await (const fact of this.#readAll(topic, partition, key)) {
      const copyKey = `${fact.eventId} ${copyScopeOf(fact.type, fact.observedAt)}`;
      if (seenIds.has(copyKey)) continue;
      seenIds.add(copyKey);
      yield fact;
    }
  }

  async *#readAll(topic: string, partition: number, key: string | null): AsyncGenerator<LogFact> {
    const { log, privateStore } = this.parts;
    const chain = openChain(privateStore, { logId: log.id, topic, partition });
    const head = await chain.head();
    for (const ref of head.live) {
      const segment = join(this.engine.workDir, `${randomBytes(8).toString("hex")}.parquet`);
      try {
        await writeFile(segment, await chain.readSegment(ref));
        const rows = this.engine.stream<RecordRow>(sql("queries/record:segment"), { segment, key });
        for await (const batch of rows) for (const row of batch) yield factOf(row);
      } finally {
        await rm(segment, { force: true });
      }
    }
    for (let nextOffset = head.next; ; ) {
      const records = await log.read(topic, partition, nextOffset);
      if (records.length === 0) return;
      for (const record of records) {
        if (key !== null && record.key !== key) continue;
        const parsed = readRecord(record);
        // A malformed record is skipped until an operator has it processed again (a redrive).
        if (!parsed.ok) continue;
        const { type, observed_at: observedAt, body } = parsed.envelope;
        yield { eventId: record.eventId, type, key: record.key, observedAt, body };
      }
      nextOffset = records.at(-1)!.offset + 1;
    }
  }
}

/** Rows of a segment were validated before they were committed, so they are not validated again. */
const factOf = (row: RecordRow): LogFact => ({
  eventId: row.event_id,
  type: row.type,
  key: row.key,
  observedAt: rfc3339(row.observed_at),
  body: JSON.parse(row.body) as Record<string, unknown>,
});
