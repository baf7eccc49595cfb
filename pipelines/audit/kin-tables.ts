import { Kin, type Thief } from "../3-grade/kin.ts";
import { EMPTY_KIN } from "../4-publish/evidence-fold.ts";
import { Unproven } from "../mirror/errors.ts";
import { type EvidenceFile, fetchEvidence, readEvidence } from "../mirror/evidence.ts";
import type { Source } from "../mirror/source.ts";
import { KinLine } from "../record/evidence.ts";

/**
 * The payee and domain tables that cards name, by hash. Each line of a file says what changed since the line before it,
 * and must lead to the table whose hash it names.
 * @throws Unproven, MissingObject, Oversized, SourceDown
 */
export async function kinTables(source: Source, files: readonly EvidenceFile[]): Promise<Map<string, Kin>> {
  const tables = new Map<string, Kin>([[EMPTY_KIN, new Kin([])]]);
  for (const file of files) {
    let table = new Map<string, Thief>();
    const lines: Buffer[] = [];
    await readEvidence(await fetchEvidence(source, file), file, (line) => lines.push(line));
    for (const line of lines) {
      const { kin: name, add, remove } = KinLine.parse(JSON.parse(line.toString("utf8")));
      table = new Map(table);
      for (const cap of remove) table.delete(cap);
      for (const { cap, domain, pay_to } of add) table.set(cap, { cap, domain, pay_to });
      const kin = new Kin([...table.values()]);
      if (kin.sha256 !== name) throw new Unproven(file.key, `the table ${name}`, kin.sha256);
      tables.set(name, kin);
    }
  }
  return tables;
}
