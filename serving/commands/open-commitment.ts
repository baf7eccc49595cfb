import { open } from "node:fs/promises";
import { systemClock } from "../../infra/clock.ts";
import { openCommitment } from "../../pipelines/audit/commitments.ts";
import { openSourceHead } from "../../pipelines/audit/open-head.ts";
import { MirrorUsage } from "../../pipelines/mirror/errors.ts";
import { openSource } from "../../pipelines/mirror/open-source.ts";
import { SALT_BYTES } from "../../pipelines/record/commitment.ts";
import type { AuditCommandOptions } from "./audit.ts";

/** Most bytes of a file that is opened: a bought answer is far smaller. */
const MAX_BYTES = 256 * 1024 * 1024;

/**
 * `touchstone audit SOURCE --open FILE --salt HEX`: proves that the log commits to these bytes under this salt, and since
 * when; docs/audit.md, Commitments.
 * @throws MirrorUsage for words that cannot be used, NotCommitted, and what the reading of a log throws
 */
export async function openCommand(from: string, options: AuditCommandOptions): Promise<void> {
  const { open: file, salt, logKey, witnessKey, json } = options;
  if (file === undefined || salt === undefined) throw new MirrorUsage("--open and --salt need each other");
  if (options.endpoint || options.also.length > 0)
    throw new MirrorUsage("--open goes with neither --endpoint nor --also");
  if (!new RegExp(`^[0-9a-f]{${SALT_BYTES * 2}}$`, "i").test(salt))
    throw new MirrorUsage(`a salt is ${SALT_BYTES} bytes, ${SALT_BYTES * 2} hex digits`);
  const bytes = await bytesOf(file);
  const source = await openSource(from, systemClock, options.settings);
  try {
    const say = (text: string) => process.stderr.write(`${text}\n`);
    const head = await openSourceHead(source, { log: logKey, witness: witnessKey }, say);
    const leaf = await openCommitment(source, head, Buffer.from(salt, "hex"), bytes, (leaves) => {
      if (process.stderr.isTTY) process.stderr.write(`\r\x1b[Klog: ${leaves} of ${head.size} leaves`);
    });
    if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
    const root = head.root.toString("hex");
    const cosigned_at = head.cosignedAt?.toISOString() ?? null;
    const proof = { proven: true, origin: head.origin, size: head.size, root, cosigned_at, leaf, bytes: bytes.length };
    process.stdout.write(
      json
        ? `${JSON.stringify(proof)}\n`
        : `proven: leaf ${leaf.index} of ${head.origin} commits to these ${bytes.length} bytes\n` +
            `  of a call to ${leaf.capability_id}, ended in the hour of ${leaf.moment}, published at ${leaf.at}\n` +
            `  under the root ${root} of ${head.size} leaves, cosigned at ${cosigned_at ?? "no time"}\n` +
            `next: touchstone audit ${from} --endpoint ${leaf.capability_id}\n`,
    );
  } finally {
    await source.close();
  }
}

async function bytesOf(file: string): Promise<Buffer> {
  const handle = await open(file).catch((error: Error) => {
    throw new MirrorUsage(`${file} cannot be read: ${error.message}`);
  });
  try {
    const { size } = await handle.stat();
    if (size > MAX_BYTES) throw new MirrorUsage(`${file} has ${size} bytes, at most ${MAX_BYTES} are opened`);
    return await handle.readFile();
  } catch (error) {
    if (error instanceof MirrorUsage) throw error;
    throw new MirrorUsage(`${file} cannot be read: ${(error as Error).message}`);
  } finally {
    await handle.close();
  }
}
