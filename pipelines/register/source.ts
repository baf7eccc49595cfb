import { createWriteStream } from "node:fs";
import { open, symlink } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { pipeline } from "node:stream/promises";
import { unzipped, ZipUnreadable, zipEntries } from "../../infra/zip.ts";

/** A file that is not the golden copy, or no file of domains: nothing was changed. */
export class RegisterUnreadable extends Error {
  override readonly name = "RegisterUnreadable";
}

/** What is read of the golden copy; the names are those of LEI-CDF 3.1 as CSV. Names of a company beside its own are any number. */
const GOLDEN_COPY = [
  "LEI",
  "Entity.LegalName",
  "Entity.OtherEntityNames.OtherEntityName.1",
  "Entity.LegalJurisdiction",
  "Entity.LegalForm.EntityLegalFormCode",
  "Entity.LegalForm.OtherLegalForm",
  "Entity.RegistrationAuthority.RegistrationAuthorityID",
  "Entity.RegistrationAuthority.RegistrationAuthorityEntityID",
  "Entity.LegalAddress.Country",
  "Entity.LegalAddress.City",
  "Entity.LegalAddress.PostalCode",
  "Entity.HeadquartersAddress.Country",
  "Entity.HeadquartersAddress.City",
  "Entity.HeadquartersAddress.PostalCode",
  "Entity.EntityStatus",
  "Registration.RegistrationStatus",
  "Registration.LastUpdateDate",
];

/** What a file is, by its first bytes: its name may say anything. */
async function formOf(path: string): Promise<"zip" | "gz" | "zst" | "plain"> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    throw new RegisterUnreadable(`${path}: ${error.code === "ENOENT" ? "there is no such file" : error.message}`);
  });
  try {
    if (!(await file.stat()).isFile()) throw new RegisterUnreadable(`${path}: this is not a file`);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(64), 0, 64, 0);
    const first = buffer.subarray(0, bytesRead);
    if (first.subarray(0, 4).equals(Buffer.from("PK\x03\x04"))) return "zip";
    if (first[0] === 0x1f && first[1] === 0x8b) return "gz";
    if (first.subarray(0, 4).equals(Buffer.from([0x28, 0xb5, 0x2f, 0xfd]))) return "zst";
    const text = first
      .toString("utf8")
      .replace(/^\uFEFF/, "")
      .trimStart();
    if (text.startsWith("<")) throw new RegisterUnreadable(`${path} is XML: take the golden copy as CSV`);
    if (/^[{[]/.test(text)) throw new RegisterUnreadable(`${path} is JSON: take the golden copy as CSV`);
    return "plain";
  } finally {
    await file.close();
  }
}

/** The one CSV in a ZIP, unpacked into a file. The engine reads no ZIP, and a plain file with all threads. */
async function unpack(path: string, to: string, progress: (says: string) => void): Promise<void> {
  const found = (await zipEntries(path)).filter(({ name }) => /\.csv$/i.test(name));
  if (found.length !== 1)
    throw new RegisterUnreadable(`${path} holds ${found.length} CSV files: the golden copy is one`);
  const entry = found[0]!;
  let done = 0;
  let told = -1;
  await pipeline(
    unzipped(path, entry),
    async function* (chunks: AsyncIterable<Buffer>) {
      for await (const chunk of chunks) {
        done += chunk.length;
        const percent = Math.floor((100 * done) / entry.size);
        if (percent > told) progress(`unpacking ${basename(entry.name)}: ${percent} %`);
        told = percent;
        yield chunk;
      }
    },
    createWriteStream(to, { flags: "wx" }),
  );
}

/**
 * A file of the operator's as the engine can read it: a path in the work folder without signs that would be a pattern, its
 * end that of its form. Only a ZIP is copied, which takes as much disk as it holds.
 * @throws RegisterUnreadable
 */
export async function readable(
  path: string,
  name: string,
  workDir: string,
  progress: (says: string) => void,
): Promise<string> {
  const form = await formOf(path);
  const to = join(workDir, `${name}.csv${form === "gz" || form === "zst" ? `.${form}` : ""}`);
  if (form !== "zip") {
    await symlink(resolve(path), to);
    return to;
  }
  try {
    await unpack(path, to, progress);
  } catch (error) {
    if (error instanceof ZipUnreadable) throw new RegisterUnreadable(`${path}: ${error.message}`);
    throw error;
  }
  return to;
}

/** @throws RegisterUnreadable in one sentence, unless these are the columns of the golden copy of level 1 */
export function refuseOther(path: string, columns: readonly string[]): void {
  const missing = GOLDEN_COPY.filter((column) => !columns.includes(column));
  if (missing.length === 0) return;
  const what = columns.includes("Relationship.StartNode.NodeID") ? "level 2 (who owns whom)" : "something else";
  const named = `${missing.slice(0, 3).join(", ")}${missing.length > 3 ? ` and ${missing.length - 3} more` : ""}`;
  throw new RegisterUnreadable(
    `${path} is not GLEIF's golden copy of level 1 as CSV but ${what}: it has no column ${named}`,
  );
}
